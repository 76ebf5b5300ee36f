// What an owner does with a row that arrives, in either mode: apply the experts and sum (fused form), or unpack it
// (split form). Both forms round at the same points (returns.dev.h), so they give the same bits.
#pragma once

#include "farwarp/ops/moe_a2a/returns.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

// ---- experts of the fused form --------------------------------------------------------------------------------------

// An expert is built from the kernel's arguments; of(e) is the function that local expert e applies to one element.

struct RankScale {
  float scale;
  FARWARP_DEVICE explicit RankScale(const Args& args) : scale(static_cast<float>(1 + args.view.rank)) {}
  FARWARP_DEVICE auto of(int) const {
    return [scale = scale](float x) { return multiply(x, scale); };
  }
};

struct TableExpert {
  Global<const float> table;  // [local experts] of (scale, shift)
  FARWARP_DEVICE explicit TableExpert(const Args& args) : table(args.fused.expert_table) {}
  FARWARP_DEVICE auto of(int expert) const {
    const float scale = load(table + 2 * expert), shift = load(table + (2 * expert + 1));
    return [scale, shift](float x) { return fused_multiply_add(x, scale, shift); };
  }
};

/// [warp] Fused form, at the owner: applies the experts in k-slot order to vectors u, u + kStride, ... below
/// segment.last, whose values are `x`. Rounds each output, sums them in fp32, rounds the sum, and sends the sum to the
/// source. `route_word`: on lane j, the word of k-slot j.
template <class T, class Expert, class Wire, int count>
FARWARP_DEVICE void apply_to_vectors(Wire& wire, const ReceivedSegment& segment, std::uint64_t route_word, int u,
                                     const typename Wire::Dispatched (&x)[count], const Expert& expert) {
  float sum[count][kElementsPer<Vector>] = {};
#pragma unroll 1
  for (std::uint64_t routes = ballot(route_word != kNoRoute); routes != 0; routes &= routes - 1) {
    const int j = lowest_bit(routes);
    const Route route = unpack_route(shuffle(route_word, j));
    const auto apply = expert.of(route.expert);
#pragma unroll
    for (int a = 0; a < count; ++a) {
      float y[kElementsPer<Vector>];
      values_of<T>(x[a], y);
#pragma unroll
      for (int i = 0; i < kElementsPer<Vector>; ++i) y[i] = apply(y[i]);
      add_weighted<T>(sum[a], route.weight, y);
    }
  }
#pragma unroll
  for (int a = 0; a < count; ++a) {
    if (u + a * kStride < segment.last) send_sum(wire.regions, segment, u + a * kStride, rounded<T, Vector>(sum[a]));
  }
}

/// [warp] Fused form, at the owner: waits for the segment and applies the experts. False on all lanes if the call is
/// over.
template <class T, class Expert, class Wire>
FARWARP_DEVICE bool apply_experts(Wire& wire, const ReceivedSegment& segment, const Expert& expert) {
  constexpr int kAhead = Wire::kAhead, kTogether = Wire::kAppliedTogether;
  std::uint64_t route_word = kNoRoute;  // on lane j: of k-slot j
#pragma unroll 1
  for (int base = segment.first; base < segment.last; base += kAhead * kStride) {
    const int u = base + lane_index();
    typename Wire::Dispatched x[kAhead] = {};
    const bool arrived = wire.read_segment(segment, u, x, base == segment.first, route_word);
    if (ballot(!arrived) != 0) {
      wire.call.live = false;
      return false;
    }
#pragma unroll 1
    for (int done = 0; done < kAhead && base + done * kStride < segment.last; done += kTogether) {
      typename Wire::Dispatched now[kTogether];
#pragma unroll
      for (int a = 0; a < kTogether; ++a) now[a] = x[a];
#pragma unroll
      for (int a = 0; a + kTogether < kAhead; ++a) x[a] = x[a + kTogether];  // registers cannot be indexed
      apply_to_vectors<T>(wire, segment, route_word, u + done * kStride, now, expert);
    }
  }
  return true;
}

/// [thread] Stores an entry of a row's top-k tables. `expert` -1: of no expert here.
FARWARP_DEVICE void store_entry(const Args& args, std::int64_t entry, std::int32_t expert, float weight) {
  if (args.tokens.wide_indices != 0) {
    store(Global<std::int64_t>(static_cast<std::int64_t*>(args.rows.recv_topk)) + entry, std::int64_t{expert});
  } else {
    store(Global<std::int32_t>(static_cast<std::int32_t*>(args.rows.recv_topk)) + entry, expert);
  }
  store(Global<float>(args.rows.recv_weights) + entry, weight);
}

/// [warp] Split form, at the owner: waits for the segment, stores a copy of it for each of its row's routes, and with
/// the row's first segment the row's record. With `once` (MoeLayout::kRows) it stores the segment in `output_row`
/// instead, and with the first segment also the row's entries; the record has one copy, of weight 1. False on all lanes
/// if the call is over.
template <bool once, class Wire>
FARWARP_DEVICE bool unpack_segment(Wire& wire, const ReceivedSegment& segment,
                                   [[maybe_unused]] std::int32_t output_row) {
  constexpr int kAhead = Wire::kUnpackAhead;
  const Args& args = wire.args;
  const auto bases = shared_at<std::int32_t>(args.shared.bases) + segment.source * args.max_local_experts;
  std::uint64_t word = kNoRoute;  // on lane j, of k-slot j: first the route, then pack_copy()
#pragma unroll 1
  for (int base = segment.first; base < segment.last; base += kAhead * kStride) {
    const int u = base + lane_index();
    typename Wire::Dispatched x[kAhead];
    const bool complete = wire.read_segment(segment, u, x, base == segment.first, word);
    if (ballot(!complete) != 0) {
      wire.call.live = false;
      return false;
    }
    if constexpr (std::is_same_v<typename Wire::Dispatched, Vec16>) {
#pragma unroll
      for (Vec16& vector : x) vector = arrived(vector);
    }
    if constexpr (once) {
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (u + a * kStride < segment.last) Wire::Encoding::deliver(args, output_row, u + a * kStride, x[a]);
      }
      continue;
    }
    if (base == segment.first && word != kNoRoute) {
      const Route route = unpack_route(word);
      word = pack_copy(load(bases + route.expert) + route.index, route.weight);
    }
#pragma unroll 1
    for (std::uint64_t routes = ballot(word != kNoRoute); routes != 0; routes &= routes - 1) {
      const std::int64_t copy_row = output_row_of_copy(shuffle(word, lowest_bit(routes)));
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (u + a * kStride < segment.last) Wire::Encoding::deliver(args, copy_row, u + a * kStride, x[a]);
      }
    }
  }
  if (segment.number != 0) return true;
  if constexpr (once) {
    const Route route = unpack_route(word);
    const bool here = word != kNoRoute;
    if (lane_index() < args.k)
      store_entry(args, std::int64_t{output_row} * args.k + lane_index(), here ? route.expert : -1,
                  here ? route.weight : 0);
    word = lane_index() == 0 ? pack_copy(output_row, 1.0f) : kNoRoute;
  }
  store_record(wire.regions, segment, word);
  return true;
}

}  // namespace farwarp::FARWARP_TARGET::moe
