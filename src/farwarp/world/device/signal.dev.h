// Telling peers that data is there.
#pragma once

#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET {

constexpr std::uint64_t tagged(std::uint32_t tag, std::uint32_t value) {
  return static_cast<std::uint64_t>(tag) << 32 | value;
}

/// [block] Publishes everything the block has written so far, then writes `value_of(rank)` to `cell_of(rank)` for every rank
/// for which `wanted(rank)`. Pairs with wait_tagged(). Every warp drains its stores, the barrier makes them the writer's, and
/// its system-scope release makes them visible (contract.md, "signal after a block's writes").
template <class CellOf, class ValueOf>
FARWARP_DEVICE void signal_after_block(int ranks, const CellOf& cell_of, const ValueOf& value_of) {
  drain_stores();
  block_sync();
  for (int rank = thread_index(); rank < ranks; rank += num_threads()) {
    store<Order::release>(cell_of(rank), value_of(rank));
  }
}

}  // namespace farwarp::FARWARP_TARGET
