// How tokens leave. Fused form: at once. Split form: each block routes its share; then it sends those rows itself, or the senders
// among the blocks send all.
#pragma once

#include "farwarp/ops/moe_a2a/presence.dev.h"
#include "farwarp/world/device/signal.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

// ---- fused form --------------------------------------------------------------------------------------------------------

/// [warp] Where the token goes. `with_head`: its routes go there, too, a word per k-slot.
FARWARP_DEVICE std::uint32_t route_token(Call& call, const Args& args, int token, bool with_head) {
  const int j = lane_index(), entry = token * args.k + j;
  const bool entry_here = j < args.k;
  // Both loads are under way before either is looked at.
  const std::int64_t listed = entry_here ? table_entry(args, entry) : -1;
  const float weight = entry_here && with_head ? load(Global<const float>(args.weights) + entry) : 0;
  const int expert = checked_expert(call, args, listed);
  const int owner = expert >= 0 ? rank_of(args, expert) : -1;
  const std::uint32_t ranks = ranks_of_lanes(args, owner);
  if (!with_head) return ranks;
  const Regions regions = regions_of(args, call);
  const std::uint64_t route = owner >= 0 ? pack_route(weight, expert - first_expert(args, owner), 0) : 0;
  for_each_rank(args, ranks, [&](int rank) {
    const std::uint64_t word = owner == rank ? route : farwarp::moe::kNoRoute;
    if (entry_here) store_packet(regions.head(rank, args.view.rank, token) + j, word, call.epoch);
  });
  return ranks;
}

/// [block] Sends this rank's rows: nothing is counted and no thread waits for another. A token's head goes out with its first
/// piece; in batches that leave warps idle from one of those, so that head and data leave side by side.
template <class Wire>
FARWARP_DEVICE void send_rows(Wire& wire, int tokens) {
  const Args& args = wire.args;
  const int units = tokens * args.segments;
  const bool heads_apart = units + tokens <= warps_of_grid();
  const int items = heads_apart ? units + tokens : units;
#pragma unroll 1
  for (int item = warp_in_grid(); item < items; item += warps_of_grid()) {
    const bool head_alone = item >= units;
    const int token = head_alone ? item - units : args.by_segments.quotient(item);
    const int segment = head_alone ? 0 : item - token * args.segments;
    const bool with_head = head_alone || (segment == 0 && !heads_apart);
    Segment piece = wire.segment_of(token, segment);
    if (head_alone) piece.last = piece.first;
    wire.send_piece(piece, [&] {
      const std::uint32_t ranks = route_token(wire.call, args, token, with_head);
      return Destinations{ranks, static_cast<std::uint32_t>(token)};
    });
  }
}

// ---- split form --------------------------------------------------------------------------------------------------------

/// [block] Every block sends what it has routed: small batches, where each row leaves at once.
template <class Wire>
FARWARP_DEVICE void send_own_rows(Wire& wire, const OwnTokens& own) {
  const auto masks = shared_at<std::uint32_t>(wire.args.shared.masks);
  const int segments = wire.args.segments;
  route_tokens(wire.call, wire.args, own, [&](const Batch& batch, const auto& slot_of) {
    const int begin = own.first_unit > batch.first * segments ? own.first_unit : batch.first * segments;
    const int end = own.last_unit < batch.last * segments ? own.last_unit : batch.last * segments;
#pragma unroll 1
    for (int unit = begin + warp_index(); unit < end; unit += warps_per_block()) {
      const int token = unit / segments;
      wire.send_piece(wire.segment_of(token, unit - token * segments), [&] {
        return Destinations{load(masks + (token - batch.first)), slot_of(token)};
      });
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
    wire.send_piece(wire.segment_of(token, unit - token * segments), [&] { return Destinations{ranks, slot}; });
  }
}

/// Who sends a row.
enum class Sending : int {
  by_router,  ///< the block that has routed it, at once
  in_order    ///< the senders among the blocks, in the order of tokens, while the others receive
};

/// [block] Split form: routes and sends this rank's tokens. Waits for no other rank.
template <Sending sending, class Wire>
FARWARP_DEVICE void send_tokens(Wire& wire, int tokens) {
  Call& call = wire.call;
  const Args& args = wire.args;
  const OwnTokens own = own_tokens(args, tokens);
  if constexpr (sending == Sending::by_router) {
    send_own_rows(wire, own);
  } else {
    route_tokens(call, args, own,
                 [&](const Batch& batch, const auto& slot_of) { keep_slots(call, args, batch, slot_of); });
    const Regions regions = regions_of(args, call);
    signal_after_block(
        1, [&](int) { return regions.routed(block_index()); }, [&](int) { return tagged(call.epoch, 0); });
    if (is_sender(args)) send_rows_in_order(wire, tokens);
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
