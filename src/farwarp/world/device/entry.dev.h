// Entering a call: what permits peers to write this rank's memory for it.
//
// A call of epoch e begins when the one before it is over on this rank, so nobody here still reads what peers wrote for e - 1. Each
// rank tells the others so; a peer's entry(e) is what a sender waits for before it overwrites that peer's memory.
#pragma once

#include "farwarp/world/device/signal.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET {

/// The rank's entry at each other: [kMaxRanks] cells at one offset of every heap.
using EntryCell = SystemCell<std::uint64_t>;

/// [warp] One warp of the kernel tells all peers, at any time after it has joined the call.
FARWARP_DEVICE void announce_entry(const Call& call, std::int64_t cells) {
  const int peer = lane_index();
  if (peer >= call.view.size || peer == call.view.rank) return;
  store<Order::release>(peer_address<EntryCell>(call.view, peer, cells) + call.view.rank, tagged(call.epoch, 0));
}

/// [thread] Waits until `peer` has entered this call. For those alone without whose sending the peer cannot finish it: otherwise its
/// next entry might take the place of this one.
template <Failure failure = Failure::called>
FARWARP_DEVICE bool wait_entry(Call& call, std::int64_t cells, int peer, std::uint32_t site) {
  if (peer == call.view.rank) return call.live;
  std::uint32_t value = 0;
  return wait_tagged<failure>(call, own_address<EntryCell>(call.view, cells) + peer, call.epoch, value, {site, peer});
}

}  // namespace farwarp::FARWARP_TARGET
