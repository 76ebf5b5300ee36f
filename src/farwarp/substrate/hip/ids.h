#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

namespace detail {

/// The operand of s_getreg_b32: `bits` bits of hardware register `id`, from bit `first` (LLVM AMDGPU usage, "hwreg").
constexpr int hardware_register(int id, int first, int bits) { return id | first << 6 | (bits - 1) << 11; }

inline constexpr int kHwId = 4;    // HW_REG_HW_ID
inline constexpr int kXccId = 20;  // HW_REG_XCC_ID

}  // namespace detail

FARWARP_DEVICE int thread_index() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
FARWARP_DEVICE int num_threads() { return static_cast<int>(__builtin_amdgcn_workgroup_size_x()); }
FARWARP_DEVICE int block_index() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }

// The first implicit argument of code object version 5 is hidden_block_count_x. The dispatch packet has only the number
// of threads.
FARWARP_DEVICE int num_blocks() {
  typedef __attribute__((address_space(4))) const std::uint32_t* Arguments;
  return static_cast<int>(*(Arguments)__builtin_amdgcn_implicitarg_ptr());
}

FARWARP_DEVICE int warp_index() { return thread_index() / Target::kWarpSize; }
FARWARP_DEVICE int lane_index() { return thread_index() % Target::kWarpSize; }

FARWARP_DEVICE int xcc() {
  return static_cast<int>(__builtin_amdgcn_s_getreg(detail::hardware_register(detail::kXccId, 0, 4)));
}

// Unique but not dense: the XCC's number, then bits 15:8 of HW_ID (shader engine, shader array and CU).
FARWARP_DEVICE int multiprocessor() {
  return xcc() << 8 | static_cast<int>(__builtin_amdgcn_s_getreg(detail::hardware_register(detail::kHwId, 8, 8)));
}

FARWARP_DEVICE Shared<std::byte> block_shared() {
  extern __attribute__((shared, aligned(128))) std::byte farwarp_block_shared[];
  return Shared<std::byte>(farwarp_block_shared);
}

}  // namespace farwarp::FARWARP_TARGET
