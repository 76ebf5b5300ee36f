// How rows leave: a warp takes a piece of a token's x and sends it to the ranks that its entries name, and waits for nobody.
#pragma once

#include "farwarp/ops/moe_a2a/routing.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

/// What a warp sends at a time: a piece of a row, or in the fused form its head, or both. It is made before the call is known, so that all
/// loads that sending needs are under way together with those of the call's cells.
template <class Wire>
struct Parcel {
  Segment piece;
  bool with_head;
  std::int32_t listed;  // on lane j: entry j of the token
  float weight;
  typename Wire::Ahead ahead;
};

/// Who sends heads: with rows, or those who route.
enum class Heads { with_rows, apart };

/// A token's head goes out with its first piece; in batches that leave warps idle from one of those, so that head and data leave
/// side by side.
template <Heads heads>
struct Parcels {
  int units, count, stride;
  FARWARP_DEVICE Parcels(const Args& args, int tokens)
      : units(tokens * args.segments), count(units), stride(args.roles.senders * args.roles.sending_warps) {
    if (heads == Heads::with_rows && units + tokens <= stride) count += tokens;
  }
  FARWARP_DEVICE bool with_head(int segment) const {
    return heads == Heads::with_rows && segment == 0 && count == units;
  }
  /// The calling warp's first parcel; it goes on with every `stride`-th.
  FARWARP_DEVICE int first(const Args& args) const {
    const int number = sender_number(args);
    return number < stride ? number : count;
  }
};

/// [warp] Parcel `number`; an empty one where there is none.
template <class Wire, Heads heads>
FARWARP_DEVICE Parcel<Wire> make_parcel(const Args& args, const Parcels<heads>& parcels, int number) {
  const bool there = number < parcels.count, head_alone = there && number >= parcels.units;
  const int token = head_alone ? number - parcels.units : args.by_segments.quotient(number);
  Segment piece = segment_of<Wire::kAlign>(args, token, head_alone ? 0 : number - token * args.segments);
  const bool with_head = head_alone || parcels.with_head(piece.number);
  if (!there || head_alone) piece.last = piece.first;
  const int entry = token * args.k + lane_index();
  const bool entry_here = there && lane_index() < args.k;
  const std::int32_t listed = table_entry(args, entry, entry_here);
  const float weight = entry_here && with_head ? load(Global<const float>(args.weights) + entry) : 0;
  return {piece, with_head, listed, weight, typename Wire::Ahead(args, piece)};
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
  wire.send_piece(parcel.piece, parcel.ahead, ranks);
}

/// [block] Sends this rank's rows in the order of tokens, beginning with a warp's `first` parcel: no thread waits for another.
template <class Wire, Heads heads>
FARWARP_DEVICE void send_rows(Wire& wire, const Parcels<heads>& parcels, const Parcel<Wire>& first) {
  Parcel<Wire> parcel = first;
#pragma unroll 1
  for (int number = parcels.first(wire.args); number < parcels.count; number += parcels.stride) {
    const Parcel<Wire> next = make_parcel<Wire>(wire.args, parcels, number + parcels.stride);
    send_parcel(wire, parcel);
    parcel = next;
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
