#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void block_sync() { __syncthreads(); }
FARWARP_DEVICE bool block_any(bool predicate) { return __syncthreads_or(predicate) != 0; }
FARWARP_DEVICE void warp_sync() { __syncwarp(); }
FARWARP_DEVICE void schedule_fence() {}
FARWARP_DEVICE int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
template <Order order>
FARWARP_DEVICE void cluster_arrive() {
  static_assert(order == Order::relaxed || order == Order::release);
  if constexpr (order == Order::relaxed) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  if constexpr (order == Order::release) asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
FARWARP_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
FARWARP_DEVICE void group_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
FARWARP_DEVICE void group_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace farwarp::FARWARP_TARGET
