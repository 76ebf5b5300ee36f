#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void block_sync() { emu::block_sync(); }
FARWARP_DEVICE bool block_any(bool predicate) { return emu::block_any(predicate); }
FARWARP_DEVICE void warp_sync() { emu::warp_exchange(emu::WarpOp::sync, 0); }
FARWARP_DEVICE void schedule_fence() {}
FARWARP_DEVICE int cluster_rank() { return emu::cluster_rank(); }
template <Order order>
FARWARP_DEVICE void cluster_arrive() {
  static_assert(order == Order::relaxed || order == Order::release);
  emu::cluster_arrive(order);
}
FARWARP_DEVICE void cluster_wait() { emu::cluster_wait(); }
FARWARP_DEVICE void group_sync(int number, int threads) { emu::group_sync(number, threads); }
FARWARP_DEVICE void group_arrive(int number, int threads) { emu::group_arrive(number, threads); }

}  // namespace farwarp::FARWARP_TARGET
