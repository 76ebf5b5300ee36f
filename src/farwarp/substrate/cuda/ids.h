#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
FARWARP_DEVICE int num_threads() { return static_cast<int>(blockDim.x); }
FARWARP_DEVICE int block_index() { return static_cast<int>(blockIdx.x); }
FARWARP_DEVICE int num_blocks() { return static_cast<int>(gridDim.x); }
FARWARP_DEVICE int warp_index() { return static_cast<int>(threadIdx.x / Target::kWarpSize); }
FARWARP_DEVICE int lane_index() { return static_cast<int>(threadIdx.x % Target::kWarpSize); }

FARWARP_DEVICE int multiprocessor() {
  std::uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return static_cast<int>(id);
}

FARWARP_DEVICE int xcc() { return 0; }

FARWARP_DEVICE Shared<std::byte> block_shared() {
  extern __shared__ __align__(1024) std::byte farwarp_block_shared[];
  return Shared<std::byte>(farwarp_block_shared);
}

}  // namespace farwarp::FARWARP_TARGET
