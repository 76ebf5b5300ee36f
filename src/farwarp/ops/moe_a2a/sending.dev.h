// How tokens leave: each block routes its share; then it sends those rows itself, or the senders among the blocks send all.
#pragma once

#include "farwarp/ops/moe_a2a/routing.dev.h"
#include "farwarp/world/device/signal.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

/// [block] Every block sends what it has routed: small batches, where each row leaves at once.
template <bool with_indices, class Wire>
FARWARP_DEVICE void send_own_rows(Wire& wire, const OwnTokens& own, int tokens) {
  const auto masks = shared_at<std::uint32_t>(wire.args.shared.masks);
  const int segments = wire.args.segments;
  route_tokens<with_indices>(wire.call, wire.args, own, tokens, [&](const Batch& batch, const auto& slot_of) {
    const int begin = own.first_unit > batch.first * segments ? own.first_unit : batch.first * segments;
    const int end = own.last_unit < batch.last * segments ? own.last_unit : batch.last * segments;
#pragma unroll 1
    for (int unit = begin + warp_index(); unit < end; unit += warps_per_block()) {
      const int token = unit / segments;
      wire.send_piece(token, unit - token * segments, load(masks + (token - batch.first)), slot_of(token));
    }
  });
}

/// [block] The senders send all rows in the order of tokens, so that they arrive in the order of their slots, which is the order
/// in which owners work on them. Each waits for the block that has routed the token.
template <class Wire>
FARWARP_DEVICE void send_rows_in_order(Wire& wire, int tokens) {
  Call& call = wire.call;
  const Args& args = wire.args;
  const Regions regions = regions_of(args, call);
  const int segments = args.segments, units = tokens * segments;
#pragma unroll 1
  for (int unit = block_index() * warps_per_block() + warp_index(); unit < units;
       unit += args.roles.senders * warps_per_block()) {
    const int token = unit / segments;
    if (lane_index() == 0) {
      std::uint32_t ignored = 0;
      wait_tagged(call, mine(regions.routed(router_of(args, tokens, token * segments))), call.epoch, ignored,
                  Wait{farwarp::moe::kSiteRouting, args.view.rank});
    }
    warp_sync();
    if (ballot(!call.live) != 0) {
      call.live = false;
      return;
    }
    const int rank = lane_index();
    const std::uint32_t slot = rank < args.view.size ? load(regions.slots(token) + rank) : farwarp::moe::kNoSlot;
    const auto ranks = static_cast<std::uint32_t>(ballot(slot != farwarp::moe::kNoSlot));
    wire.send_piece(token, unit - token * segments, ranks, slot);
  }
}

/// Who sends a row.
enum class Sending : int {
  by_router,  ///< the block that has routed it, at once
  in_order    ///< the senders among the blocks, in the order of tokens, while the others receive
};

/// [block] Routes and sends this rank's tokens. Waits for no other rank.
template <Sending sending, bool with_indices, class Wire>
FARWARP_DEVICE void send_tokens(Wire& wire, int tokens) {
  Call& call = wire.call;
  const Args& args = wire.args;
  const OwnTokens own = own_tokens(args, tokens);
  if constexpr (sending == Sending::by_router) {
    send_own_rows<with_indices>(wire, own, tokens);
  } else {
    route_tokens<with_indices>(call, args, own, tokens, [&](const Batch& batch, const auto& slot_of) {
      keep_slots(call, args, batch, slot_of);
    });
    const Regions regions = regions_of(args, call);
    signal_after_block(
        1, [&](int) { return regions.routed(block_index()); }, [&](int) { return tagged(call.epoch, 0); });
    if (is_sender(args)) send_rows_in_order(wire, tokens);
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
