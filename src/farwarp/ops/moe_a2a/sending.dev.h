// How rows are sent: a warp sends a segment of a token's x to the owners of the token's entries. It waits for no other
// warp.
#pragma once

#include "farwarp/ops/moe_a2a/routing.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

/// What a warp sends at a time: a segment of a row, or with RouteSenders::row_warps its routes, or both. A warp makes
/// its first parcel before it joins the call, so that the parcel's loads are in flight together with those of the
/// call's cells.
template <class Wire>
struct Parcel {
  Segment segment;
  bool has_routes;
  std::int32_t listed;  // on lane j: entry j of the token, unchecked
  float weight;
  typename Wire::Ahead ahead;
};

/// Who sends routes: the warps that send rows (fused form; kRows in whole rows), or the workers, in route_tokens()
/// (rows by expert). In pieces: send_all_routes().
enum class RouteSenders { row_warps, workers };

/// The parcels of a launch. With row_warps a token's routes are sent with its first segment, or, if there are enough
/// sending warps for one more parcel per token, as parcels of their own, numbered after the segments, so that other
/// warps send them at the same time as the data.
template <RouteSenders senders>
struct Parcels {
  int all_segments;  // parcels [0, all_segments) are segments
  int count;
  int stride;  // number of warps that send
  FARWARP_DEVICE Parcels(const Args& args, int tokens)
      : all_segments(tokens * args.segments),
        count(all_segments),
        stride(args.roles.sending_blocks * args.roles.sending_warps) {
    if (senders == RouteSenders::row_warps && all_segments + tokens <= stride) count += tokens;
  }
  /// Whether routes are parcels of their own.
  FARWARP_DEVICE bool routes_apart() const { return count != all_segments; }
  /// Whether a row's segment number `segment` is sent with the row's routes.
  FARWARP_DEVICE bool takes_routes(int segment) const {
    return senders == RouteSenders::row_warps && segment == 0 && !routes_apart();
  }
  /// The calling warp's first parcel; it goes on with every `stride`-th.
  FARWARP_DEVICE int first(const Args& args) const {
    const int warp = sending_warp_number(args);
    return warp < stride ? warp : count;
  }
};

/// [warp] Parcel `number`; an empty one if there is no such parcel.
template <class Wire, RouteSenders senders>
FARWARP_DEVICE Parcel<Wire> make_parcel(const Args& args, const Parcels<senders>& parcels, int number) {
  const bool there = number < parcels.count, routes_alone = there && number >= parcels.all_segments;
  const int token = routes_alone ? number - parcels.all_segments : args.by_segments.quotient(number);
  Segment segment = segment_of<Wire::kAlign>(args, token, routes_alone ? 0 : number - token * args.segments);
  const bool has_routes = routes_alone || parcels.takes_routes(segment.number);
  if (!there || routes_alone) segment.last = segment.first;
  const int entry = token * args.k + lane_index();
  const bool entry_here = there && lane_index() < args.k;
  const std::int32_t listed = table_entry(args, entry, entry_here);
  const float weight = entry_here && has_routes ? load(Global<const float>(args.tokens.weights) + entry) : 0;
  return {segment, has_routes, listed, weight, typename Wire::Ahead(args, segment)};
}

/// [warp] Skips entries out of range; send_bitmaps() reports them.
template <class Wire>
FARWARP_DEVICE void send_parcel(Wire& wire, const Parcel<Wire>& parcel) {
  const Args& args = wire.args;
  const int token = parcel.segment.token, expert = expert_or_none(args, parcel.listed);
  const int owner = owner_or_none(args, expert);
  const std::uint32_t ranks = ranks_of_lanes(args, owner);
  if (parcel.has_routes) {
    const std::uint64_t route = owner >= 0 ? pack_route(parcel.weight, expert - first_expert(args, owner), 0) : 0;
    send_routes(wire.call, args, token, ranks, owner, route);
  }
  wire.send_segment(parcel.segment, parcel.ahead, ranks);
}

/// A warp's parcels, which it sends in the order of tokens. It waits for no other warp. The first one is loaded at
/// once.
template <class Wire, RouteSenders senders>
class RowsToSend {
 public:
  FARWARP_DEVICE RowsToSend(const Args& args, const Parcels<senders>& parcels)
      : parcels_(parcels), number_(parcels.first(args)), parcel_(make_parcel<Wire>(args, parcels, number_)) {}

  /// [warp] While a parcel is sent, the next one is loaded.
  FARWARP_DEVICE void send(Wire& wire) {
#pragma unroll 1
    while (number_ < parcels_.count) {
      number_ += parcels_.stride;
      const Parcel<Wire> next = make_parcel<Wire>(wire.args, parcels_, number_);
      const TraceStart start = trace_start();
      send_parcel(wire, parcel_);
      trace_warp(start, TraceWork::kSend, parcel_.segment.token);
      parcel_ = next;
    }
  }

 private:
  const Parcels<senders>& parcels_;
  int number_;
  Parcel<Wire> parcel_;
};

}  // namespace farwarp::FARWARP_TARGET::moe
