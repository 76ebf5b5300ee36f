// The emulator's table of kernels. FARWARP_KERNEL adds a record for each kernel and personality that is linked into the
// program.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "farwarp/base/machine_shape.h"

namespace farwarp::emu {

struct KernelRecord {
  KernelRecord(const char* name, TargetKind personality, std::size_t args_bytes, int max_threads,
               void (*body)(const void* args));

  const char* name;
  TargetKind personality;  ///< kEmuSm90 or kEmuGfx942
  std::size_t args_bytes;
  int max_threads;
  void (*body)(const void* args);  ///< runs one thread of the kernel, on that thread's fiber
};

/// nullptr if no such kernel is linked in.
const KernelRecord* find_kernel(std::string_view name, TargetKind personality);
/// For tests: find_kernel("name") returns the kernel "variant:name" if there is one. Empty: no variant.
void prefer_variant(std::string_view variant);
/// All kernels of a personality, sorted by name.
std::vector<const KernelRecord*> list_kernels(TargetKind personality);

}  // namespace farwarp::emu
