// What is done with one row, whichever way it crossed the link: apply the experts and sum (fused), unpack to expert-major
// rows (split dispatch), gather and sum the experts' outputs (split combine). All three round at the same places, so packet
// and bulk mode, fused and split form give the same bits.
#pragma once

#include "farwarp/ops/moe_a2a/encoding.dev.h"
#include "farwarp/ops/moe_a2a/routing.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

/// A piece of a token's row: units [first, last).
struct Segment {
  int token, number;
  int first, last;
};

/// A piece of a received row that one warp works on. In the split form its routes stand in the warp's scratch, in k-slot order.
struct Row {
  int source;
  std::int32_t slot;
  std::int32_t token;  ///< its number at the source
  int routes;
  int segment;
  int first, last;  ///< units
};

/// First unit of a row's segment, a multiple of `align`; of segment number `segments`, the end.
template <int align>
FARWARP_DEVICE int segment_start(const Args& args, int units, int segment) {
  const int start = args.by_segments.quotient(units * segment);
  return align == 1 || segment == args.segments ? start : start / align * align;
}

// ---- experts of the fused form ---------------------------------------------------------------------------------------

// An expert is built from the kernel's arguments; of(e) gives what local expert e does to one element.

struct RankScale {
  float scale;
  FARWARP_DEVICE explicit RankScale(const Args& args) : scale(static_cast<float>(1 + args.view.rank)) {}
  FARWARP_DEVICE auto of(int) const {
    return [scale = scale](float x) { return multiply(x, scale); };
  }
};

struct TableExpert {
  Global<const float> table;  // [local experts] of (scale, shift)
  FARWARP_DEVICE explicit TableExpert(const Args& args) : table(args.expert_table) {}
  FARWARP_DEVICE auto of(int expert) const {
    const float scale = load(table + 2 * expert), shift = load(table + (2 * expert + 1));
    return [scale, shift](float x) { return fused_multiply_add(x, scale, shift); };
  }
};

/// sum += weight * y, one rounding, in the caller's order.
template <class T, int count>
FARWARP_DEVICE void add_weighted(float (&sum)[count], float weight, const float (&y)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) sum[i] = fused_multiply_add(weight, to_float(round_to<T>(y[i])), sum[i]);
}

/// [warp] Fused form, at the owner: units u, u + kStride, ... of a row, as far as they belong to it, through the experts in k-slot
/// order; summed in fp32, rounded once, and back to the source. `head`: on lane j, the word of k-slot j.
template <class T, class Expert, class Wire, int count>
FARWARP_DEVICE void apply_to_units(Wire& wire, const Row& row, std::uint64_t head, int u,
                                   const typename Wire::Piece (&x)[count], const Expert& expert) {
  using Unit = typename Wire::Unit;
  float sum[count][kPer<Unit>] = {};
#pragma unroll 1
  for (std::uint64_t routes = ballot(head != farwarp::moe::kNoRoute); routes != 0; routes &= routes - 1) {
    const int j = lowest_bit(routes);
    const Route route = unpack_route(shuffle(head, j), j);
    const auto apply = expert.of(route.expert);
#pragma unroll
    for (int a = 0; a < count; ++a) {
      float y[kPer<Unit>];
      values_of<T>(x[a], y);
#pragma unroll
      for (int i = 0; i < kPer<Unit>; ++i) y[i] = apply(y[i]);
      add_weighted<T>(sum[a], route.weight, y);
    }
  }
#pragma unroll
  for (int a = 0; a < count; ++a) {
    if (u + a * kStride < row.last) wire.write_return(row, u + a * kStride, rounded<T, Unit>(sum[a]));
  }
}

/// [warp] Fused form, at the owner: waits for the row and applies the experts. False on all lanes if the call is over.
template <class T, class Expert, class Wire>
FARWARP_DEVICE bool apply_experts(Wire& wire, const Row& row, const Expert& expert) {
  constexpr int kAhead = Wire::kAhead, kTogether = Wire::kAppliedTogether;
  std::uint64_t head = farwarp::moe::kNoRoute;  // lane j: of k-slot j
#pragma unroll 1
  for (int base = row.first; base < row.last; base += kAhead * kStride) {
    const int u = base + lane_index();
    typename Wire::Landed x[kAhead] = {};
    const bool arrived = wire.read_row(row, u, x, base == row.first, head);
    if (ballot(!arrived) != 0) {
      wire.call.live = false;
      return false;
    }
#pragma unroll 1
    for (int done = 0; done < kAhead && base + done * kStride < row.last; done += kTogether) {
      typename Wire::Piece now[kTogether];
#pragma unroll
      for (int a = 0; a < kTogether; ++a) now[a] = Wire::piece_of(x[a]);
#pragma unroll
      for (int a = 0; a + kTogether < kAhead; ++a) x[a] = x[a + kTogether];  // registers have no index
      apply_to_units<T>(wire, row, head, u + done * kStride, now, expert);
    }
  }
  return true;
}

/// [warp] Split form, at the owner: one copy of the row for each of its routes.
template <class Wire>
FARWARP_DEVICE void unpack_row(Wire& wire, const Row& row) {
  constexpr int kAhead = Wire::kUnpackAhead;
  const Args& args = wire.args;
  const auto routes = scratch_of(args);
  const auto bases = shared_at<std::int32_t>(args.shared.bases) + row.source * args.max_local_experts;
#pragma unroll 1
  for (int u = row.first + lane_index(); u < row.last; u += kAhead * kStride) {
    typename Wire::Piece x[kAhead];
    if (!wire.read(row, u, x)) break;
#pragma unroll 1
    for (int r = 0; r < row.routes; ++r) {
      const Route route = load(routes + r);
      const std::int64_t place = load(bases + route.expert) + route.index;
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (u + a * kStride < row.last) Wire::Encoding::deliver(args, place, u + a * kStride, x[a]);
      }
    }
  }
  if (args.origins != nullptr && row.first == 0 && lane_index() < row.routes) {
    const Route route = load(routes + lane_index());
    const std::int64_t place = load(bases + route.expert) + route.index;
    const std::int64_t origin =
        static_cast<std::int64_t>(row.source) << 48 | static_cast<std::int64_t>(row.token) << 16 | route.k_slot;
    store(Global<std::int64_t>(args.origins) + place, origin);
  }
}

/// [warp] Split form, at the owner: gathers the experts' outputs of one token in k-slot order, sums and rounds as
/// apply_experts does, and back to the source.
template <class T, class Wire>
FARWARP_DEVICE void reduce_row(Wire& wire, const Row& row) {
  using Unit = typename Wire::Unit;
  constexpr int kAhead = Wire::kReduceAhead;
  const Args& args = wire.args;
  const auto routes = scratch_of(args);
  const auto bases = wire.regions.saved_bases() + row.source * args.max_local_experts;
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
      if (u + a * kStride < row.last) wire.write_return(row, u + a * kStride, rounded<T, Unit>(sum[a]));
    }
  }
}

/// [warp] At the source: the sums of the owners in `ranks` for one token, added in rank order in fp32, rounded once. A token
/// that went nowhere gives zeros.
template <class T, class Wire>
FARWARP_DEVICE void sum_returns(Wire& wire, std::uint32_t ranks, const Segment& piece) {
  using Unit = typename Wire::Unit;
  const Args& args = wire.args;
  constexpr int kReturnsAhead = Wire::kReturnsAhead;
  const int units = args.hidden / kPer<Unit>;
  const Global<Unit> out = Global<Unit>(static_cast<Unit*>(args.out)) + static_cast<std::int64_t>(piece.token) * units;
#pragma unroll 1
  for (int u = piece.first + lane_index(); u < piece.last; u += kReturnsAhead * kStride) {
    Unit parts[kReturnsAhead][kMaxRanks];
    bool arrived = true;
#pragma unroll
    for (int a = 0; a < kReturnsAhead; ++a) {
      if (u + a * kStride < piece.last)
        arrived = wire.read_returns(piece.token, ranks, u + a * kStride, parts[a]) && arrived;
    }
    if (!arrived) break;
#pragma unroll
    for (int a = 0; a < kReturnsAhead; ++a) {
      if (u + a * kStride >= piece.last) break;
      float sum[kPer<Unit>] = {};
#pragma unroll
      for (int r = 0; r < kMaxRanks; ++r) {
        if (!(ranks >> r & 1)) continue;
#pragma unroll
        for (int i = 0; i < kPer<Unit>; ++i) sum[i] = add(sum[i], to_float(element<T>(parts[a][r], i)));
      }
      store<Cache::streaming>(out + (u + a * kStride), rounded<T, Unit>(sum));
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
