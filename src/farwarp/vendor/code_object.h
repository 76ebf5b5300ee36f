// The GPU code linked into this program: one record per kernel file and architecture, written by farwarp_kernels()
// (cmake/FarwarpKernels.cmake). The counterpart of the emulator's table in substrate/emu/registry.h.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"

namespace farwarp {

struct CodeObject {
  CodeObject(std::string_view name, TargetKind target, std::string_view arch, const std::byte* begin,
             const std::byte* end);
  CodeObject(const CodeObject&) = delete;
  CodeObject& operator=(const CodeObject&) = delete;

  /// The ELF image: a cubin, or an AMD code object. Decompressed by the first call, then kept until the process ends,
  /// because HIP's library makes no copy. kInternal if `compressed` is damaged.
  Result<std::span<const std::byte>> image() const;

  std::string_view name;                  ///< of the kernel file, as given to farwarp_kernels()
  TargetKind target;                      ///< kCuda or kHip
  std::string_view arch;                  ///< "sm_90a", "gfx942", "gfx950"
  std::span<const std::byte> compressed;  ///< as cmake/compress.py writes it

 private:
  mutable std::once_flag once_;
  mutable const std::vector<std::byte>* image_ = nullptr;  // never freed; null if damaged
};

/// All code objects of a target, sorted by name, then architecture. A device loads those of its own architecture.
std::vector<const CodeObject*> code_objects(TargetKind target);

}  // namespace farwarp
