// Telling peers that data is there.
#pragma once

#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET {

constexpr std::uint64_t tagged(std::uint32_t tag, std::uint32_t value) {
  return static_cast<std::uint64_t>(tag) << 32 | value;
}

/// [block] Publishes everything the block has written so far, then writes `value_of(i)` to `cell_of(i)` for i in 0 .. count-1.
/// Pairs with wait_tagged(). Every warp drains its stores, the barrier makes them the writers', and their system-scope
/// release makes them visible (contract.md, "signal after a block's writes").
template <class CellOf, class ValueOf>
FARWARP_DEVICE void signal_after_block(int count, const CellOf& cell_of, const ValueOf& value_of) {
  drain_stores();
  block_sync();
  for (int i = thread_index(); i < count; i += num_threads()) store<Order::release>(cell_of(i), value_of(i));
}

/// [warp] Publishes everything the warp has written so far, then calls `store_flags` on its first lane, which makes relaxed
/// stores to cells: one fence makes releases of them all. Pairs with wait_tagged().
template <class StoreFlags>
FARWARP_DEVICE void signal_after_warp(const StoreFlags& store_flags) {
  drain_stores();
  warp_sync();
  if (lane_index() != 0) return;
  fence<Order::release, Scope::system>();
  store_flags();
}

}  // namespace farwarp::FARWARP_TARGET
