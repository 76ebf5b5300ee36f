// The way back: partial sums return as words to the tokens' ranks, which add them up. No flag and no fence stands between a store and
// its reader, who clears what it has read.
#pragma once

#include "farwarp/ops/moe_a2a/encoding.dev.h"
#include "farwarp/ops/moe_a2a/pieces.dev.h"
#include "farwarp/ops/moe_a2a/routing.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

/// [thread] At the owner: unit `u` of a row's sum, to the row's source.
FARWARP_DEVICE void send_sum(const Regions& regions, const Row& row, int u, Unit sum) {
  store_words(regions.returned(row.source, row.token, regions.me()) + u, sendable(sum));
}

/// sum += weight * y, one rounding, in the caller's order.
template <class T, int count>
FARWARP_DEVICE void add_weighted(float (&sum)[count], float weight, const float (&y)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) sum[i] = fused_multiply_add(weight, to_float(round_to<T>(y[i])), sum[i]);
}

/// [warp] Split form, at the owner: gathers the experts' outputs of one token in k-slot order, sums and rounds as
/// apply_experts does, and back to the source.
template <class T>
FARWARP_DEVICE void reduce_row(const Args& args, const Regions& regions, const Row& row) {
  constexpr int kAhead =
      4;  // units of a lane in flight; with two combine of 256 tokens x 7168 takes 36 us for 30 (2 H200s, 2026-11)
  const auto routes = scratch_of(args);
  const auto bases = regions.saved_bases() + row.source * args.max_local_experts;
  const int units = args.hidden / kPer<Unit>;
  constexpr int kRoutesAhead = 2;  // whose outputs are in flight together
  const Global<const Unit> input(static_cast<const Unit*>(args.y));
#pragma unroll 1
  for (int u = row.first + lane_index(); u < row.last; u += kAhead * kStride) {
    float sum[kAhead][kPer<Unit>] = {};
#pragma unroll 1
    for (int first = 0; first < row.routes; first += kRoutesAhead) {
      Unit packed[kRoutesAhead][kAhead];
      float weight[kRoutesAhead];
#pragma unroll
      for (int r = 0; r < kRoutesAhead; ++r) {
        const Route route = load(routes + (first + r < row.routes ? first + r : first));
        const std::int64_t place = load(bases + route.expert) + route.index;
        weight[r] = route.weight;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          const bool wanted = first + r < row.routes && u + a * kStride < row.last;
          packed[r][a] = wanted ? load<Cache::streaming>(input + (place * units + u + a * kStride)) : Unit{};
        }
      }
#pragma unroll
      for (int r = 0; r < kRoutesAhead; ++r) {
        if (first + r >= row.routes) break;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (u - lane_index() + a * kStride >= row.last) break;  // of no lane
          float y[kPer<Unit>];
          values_of<T>(packed[r][a], y);
          add_weighted<T>(sum[a], weight[r], y);
        }
      }
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (u + a * kStride < row.last) send_sum(regions, row, u + a * kStride, rounded<T, Unit>(sum[a]));
    }
  }
}

/// [warp] At the source: the sums of the owners in `ranks` for one token, added in rank order in fp32, rounded once. A token
/// that went nowhere gives zeros. `owners`: ranks at most; `ahead`: units of each that a lane has in flight, for all of them are under
/// way before one is looked at.
template <class T, int owners, int ahead>
FARWARP_DEVICE void add_up(Call& call, const Regions& regions, std::uint32_t ranks, const Segment& piece) {
  const Global<const Unit> sums(regions.returned(regions.me(), piece.token, 0).raw);
  const Global<Unit> out =
      Global<Unit>(static_cast<Unit*>(regions.args.out)) + std::int64_t{piece.token} * regions.units();
#pragma unroll 1
  for (int u = piece.first + lane_index(); u < piece.last; u += ahead * kStride) {
    Global<const Unit> from[owners * ahead];
    Unit parts[owners * ahead];
    std::uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < owners * ahead; ++i) {
      const int owner = i / ahead, unit = u + i % ahead * kStride;
      from[i] = sums + (owner * regions.units() + unit);
      if ((ranks >> owner & 1) != 0 && unit < piece.last) wanted |= 1u << i;
    }
    if (!wait_words<ahead>(call, from, wanted, parts, Wait{farwarp::moe::kSiteReturn, -1, 1})) break;
    clear_words(from, wanted);
#pragma unroll
    for (int a = 0; a < ahead; ++a) {
      if (u + a * kStride >= piece.last) break;
      float sum[kPer<Unit>] = {};
#pragma unroll
      for (int owner = 0; owner < owners; ++owner) {
        if (!(ranks >> owner & 1)) continue;
#pragma unroll
        for (int i = 0; i < kPer<Unit>; ++i) sum[i] = add(sum[i], to_float(element<T>(parts[owner * ahead + a], i)));
      }
      store<Cache::streaming>(out + (u + a * kStride), rounded<T, Unit>(sum));
    }
  }
}

/// [warp] The same with about as many loads in flight for few ranks as for many.
template <class T>
FARWARP_DEVICE void add_up_returns(Call& call, const Regions& regions, std::uint32_t ranks, const Segment& piece) {
  if (regions.ranks() <= 2) return add_up<T, 2, 4>(call, regions, ranks, piece);
  if (regions.ranks() <= 4) return add_up<T, 4, 2>(call, regions, ranks, piece);
  add_up<T, kMaxRanks, 1>(call, regions, ranks, piece);
}

/// [block] Adds up what returns, in the order in which tokens were sent.
template <class T>
FARWARP_DEVICE void receive_returns(Call& call, const Args& args, int tokens) {
  const Regions regions = regions_of(args, call);
#pragma unroll 1
  for (int unit = warp_in_grid(); unit < tokens * args.segments; unit += warps_of_grid()) {
    const int token = args.by_segments.quotient(unit);
    const Segment piece = segment_of<1>(args, token, unit - token * args.segments);
    add_up_returns<T>(call, regions, destinations_by_lanes(args, token), piece);
    // A lane that has given up ends it for the warp.
    if (ballot(!call.live) != 0) {
      call.live = false;
      return;
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
