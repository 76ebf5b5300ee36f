#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void block_sync() { __syncthreads(); }
FARWARP_DEVICE bool block_any(bool predicate) { return __syncthreads_or(predicate) != 0; }
FARWARP_DEVICE void warp_sync() { __syncwarp(); }
FARWARP_DEVICE void schedule_fence() {}
FARWARP_DEVICE void group_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace farwarp::FARWARP_TARGET
