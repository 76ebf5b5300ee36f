// The GPU code linked into this program: one record per kernel file and architecture, written by farwarp_kernels()
// (cmake/FarwarpKernels.cmake). The counterpart of the emulator's table in substrate/emu/registry.h.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "farwarp/base/machine_shape.h"

namespace farwarp {

struct CodeObject {
  CodeObject(std::string_view name, TargetKind target, std::string_view arch, const std::byte* begin,
             const std::byte* end);
  CodeObject(const CodeObject&) = delete;
  CodeObject& operator=(const CodeObject&) = delete;

  std::size_t size() const { return static_cast<std::size_t>(end - begin); }

  std::string_view name;   ///< of the kernel file, as given to farwarp_kernels()
  TargetKind target;       ///< kCuda or kHip
  std::string_view arch;   ///< "sm_90a", "gfx942", "gfx950"
  const std::byte* begin;  ///< an ELF image, 64-byte aligned: a cubin, or an AMD code object
  const std::byte* end;
};

/// All code objects of a target, sorted by name, then architecture. A device loads those of its own architecture.
std::vector<const CodeObject*> code_objects(TargetKind target);

}  // namespace farwarp
