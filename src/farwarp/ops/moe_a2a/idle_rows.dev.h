// The tags of what a call leaves idle.
#pragma once

#include "farwarp/ops/moe_a2a/presence.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

/// [block] Gives packets of this rank a recent tag that no call will wait for.
FARWARP_DEVICE void retag(const Call& call, Peer<Packet> packets, int count) {
  for (int i = thread_index(); i < count; i += num_threads()) store_packet(packets + i, 0, call.epoch - 1);
}

/// [block] A slice of the places that this call leaves idle gets a recent tag, each once in kRefreshPeriod calls of a parity. Without it a
/// place that is skipped for exactly 2^32 calls would show its old contents as new. The bitmaps of all sources have been awaited.
template <class Wire>
FARWARP_DEVICE void refresh_idle_rows(Wire& wire) {
  const Args& args = wire.args;
  if (!is_first_worker(args)) return;
  const int places = args.max_tokens * args.view.size;
#pragma unroll 1
  for (auto place = static_cast<int>((wire.call.epoch / 2) % farwarp::moe::kRefreshPeriod); place < places;
       place += static_cast<int>(farwarp::moe::kRefreshPeriod)) {
    const int token = args.by_ranks.quotient(place), source = place - token * args.view.size;
    if (has_row(args, source, token)) continue;
    retag(wire.call, wire.regions.head(args.view.rank, source, token), args.k);
    wire.retag_row(source, token);
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
