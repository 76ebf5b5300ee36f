// How tokens leave. Fused form: at once. Split form: each block routes its share; then it sends those rows itself, or the senders
// among the blocks send all.
#pragma once

#include "farwarp/ops/moe_a2a/presence.dev.h"
#include "farwarp/world/device/signal.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

// ---- fused form --------------------------------------------------------------------------------------------------------

/// What a warp sends at a time: a piece of a row, or its head, or both. It is made before the call is known, so that all loads that
/// sending needs are under way together with those of the call's cells.
template <class Wire>
struct Parcel {
  Segment piece;
  bool with_head;
  std::int32_t listed;  // on lane j: entry j of the token
  float weight;
  typename Wire::Ahead ahead;
};

/// A token's head goes out with its first piece; in batches that leave warps idle from one of those, so that head and data leave
/// side by side.
struct Parcels {
  int units, count, stride;
  FARWARP_DEVICE Parcels(const Args& args, int tokens)
      : units(tokens * args.segments), count(units), stride(args.sending_warps) {
    if (units + tokens <= stride) count += tokens;
  }
  FARWARP_DEVICE bool heads_apart() const { return count > units; }
  /// The calling warp's first parcel; it goes on with every `stride`-th.
  FARWARP_DEVICE int first() const { return warp_in_grid() < stride ? warp_in_grid() : count; }
};

/// [warp] Parcel `number`; an empty one where there is none.
template <class Wire>
FARWARP_DEVICE Parcel<Wire> make_parcel(const Args& args, const Parcels& parcels, int number) {
  const bool there = number < parcels.count, head_alone = there && number >= parcels.units;
  const int token = head_alone ? number - parcels.units : args.by_segments.quotient(number);
  Segment piece = segment_of<Wire::kAlign>(args, token, head_alone ? 0 : number - token * args.segments);
  const bool with_head = head_alone || (piece.number == 0 && !parcels.heads_apart());
  if (!there || head_alone) piece.last = piece.first;
  const int entry = token * args.k + lane_index();
  const bool entry_here = there && lane_index() < args.k;
  const std::int32_t listed = table_entry(args, entry, entry_here);
  const float weight = entry_here && with_head ? load(Global<const float>(args.weights) + entry) : 0;
  return {piece, with_head, listed, weight, typename Wire::Ahead(args, piece)};
}

/// [warp] A row's head to the ranks of its token's entries, a word per k-slot.
FARWARP_DEVICE void send_routes(const Call& call, const Args& args, int token, std::uint32_t ranks, int owner,
                                std::uint64_t route) {
  const int j = lane_index(), peer = j < args.view.size ? j : args.view.rank;
  const auto address = reinterpret_cast<std::uint64_t>(regions_of(args, call).head(peer, args.view.rank, token).raw);
  for_each_rank(args, ranks, [&](int rank) {
    const Peer<Packet> head(reinterpret_cast<Packet*>(shuffle(address, rank)));
    const std::uint64_t word = owner == rank ? route : farwarp::moe::kNoRoute;
    if (j < args.k) store_packet(head + j, word, call.epoch);
  });
}

/// [warp] Who announces the row complains of entries out of range.
template <class Wire>
FARWARP_DEVICE void send_parcel(Wire& wire, const Parcel<Wire>& parcel) {
  const Args& args = wire.args;
  const int token = parcel.piece.token, expert = expert_or_none(args, parcel.listed);
  const int owner = expert >= 0 ? rank_of(args, expert) : -1;
  const std::uint32_t ranks = ranks_of_lanes(args, owner);
  if (parcel.with_head) {
    const std::uint64_t route = owner >= 0 ? pack_route(parcel.weight, expert - first_expert(args, owner), 0) : 0;
    send_routes(wire.call, args, token, ranks, owner, route);
  }
  wire.send_piece(parcel.piece, parcel.ahead, ranks, static_cast<std::uint32_t>(token));
}

/// [block] Sends this rank's rows, beginning with a warp's `first` parcel: nothing is counted and no thread waits for another.
template <class Wire>
FARWARP_DEVICE void send_rows(Wire& wire, const Parcels& parcels, const Parcel<Wire>& first) {
  Parcel<Wire> parcel = first;
#pragma unroll 1
  for (int number = parcels.first(); number < parcels.count; number += parcels.stride) {
    const Parcel<Wire> next = make_parcel<Wire>(wire.args, parcels, number + parcels.stride);
    send_parcel(wire, parcel);
    parcel = next;
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
      const Segment piece = segment_of<Wire::kAlign>(wire.args, token, unit - token * segments);
      wire.send_piece(piece, typename Wire::Ahead(wire.args, piece), load(masks + (token - batch.first)),
                      slot_of(token));
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
    const Segment piece = segment_of<Wire::kAlign>(args, token, unit - token * segments);
    wire.send_piece(piece, typename Wire::Ahead(args, piece), ranks, slot);
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
