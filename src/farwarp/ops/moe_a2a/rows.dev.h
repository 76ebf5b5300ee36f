// What is done with one row, whichever way it crossed the link: apply the experts and sum (fused), unpack to expert-major
// rows (split dispatch), gather and sum the experts' outputs (split combine). All three round at the same places, so packet
// and bulk mode, fused and split form give the same bits.
#pragma once

#include "farwarp/ops/moe_a2a/routing.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

/// A piece of a received row that one warp works on. Its routes stand in the warp's scratch, in k-slot order.
struct Row {
  int source;
  std::int32_t slot;
  std::int32_t token;  ///< its number at the source
  int routes;
  int first_vector, last_vector;
};

inline constexpr int kPerVector = 8;  // 16-bit elements of a Vec16

template <class T>
FARWARP_DEVICE T element(Vec16 vector, int i) {
  return T{static_cast<std::uint16_t>((i < 4 ? vector.lo : vector.hi) >> (16 * (i & 3)))};
}

template <class T>
FARWARP_DEVICE Vec16 rounded(const float (&values)[kPerVector]) {
  Vec16 vector{0, 0};
#pragma unroll
  for (int i = 0; i < kPerVector; ++i) {
    const std::uint64_t bits = static_cast<std::uint64_t>(round_to<T>(values[i]).bits) << (16 * (i & 3));
    (i < 4 ? vector.lo : vector.hi) |= bits;
  }
  return vector;
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
template <class T>
FARWARP_DEVICE void add_weighted(float (&sum)[kPerVector], float weight, const float (&y)[kPerVector]) {
#pragma unroll
  for (int i = 0; i < kPerVector; ++i) sum[i] = fused_multiply_add(weight, to_float(round_to<T>(y[i])), sum[i]);
}

/// [warp] Fused form, at the owner: experts in k-slot order, summed in fp32, rounded once, and back to the source.
template <class T, class Expert, class Wire>
FARWARP_DEVICE void apply_experts(Wire& wire, const Row& row, const Expert& expert) {
  const auto routes = scratch_of(wire.args);
  for (int v = row.first_vector + lane_index(); v < row.last_vector; v += Target::kWarpSize) {
    Vec16 x;
    if (!wire.read(row, v, x)) break;
    float sum[kPerVector] = {};
    for (int r = 0; r < row.routes; ++r) {
      const Route route = load(routes + r);
      const auto apply = expert.of(route.expert);
      float y[kPerVector];
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) y[i] = apply(to_float(element<T>(x, i)));
      add_weighted<T>(sum, route.weight, y);
    }
    wire.write_return(row, v, rounded<T>(sum));
  }
}

/// [warp] Split form, at the owner: one copy of the row for each of its routes.
template <class Wire>
FARWARP_DEVICE void unpack_row(Wire& wire, const Row& row) {
  const Args& args = wire.args;
  const auto routes = scratch_of(args);
  const auto bases = shared_at<std::int32_t>(args.shared.bases) + row.source * args.max_local_experts;
  const int vectors = args.hidden / kPerVector;
  const Global<Vec16> output(static_cast<Vec16*>(args.recv_x));
  for (int v = row.first_vector + lane_index(); v < row.last_vector; v += Target::kWarpSize) {
    Vec16 x;
    if (!wire.read(row, v, x)) break;
    for (int r = 0; r < row.routes; ++r) {
      const Route route = load(routes + r);
      const std::int64_t place = load(bases + route.expert) + route.index;
      store<Cache::streaming>(output + (place * vectors + v), x);
    }
  }
  if (args.origins != nullptr && row.first_vector == 0 && lane_index() < row.routes) {
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
  const Args& args = wire.args;
  const auto routes = scratch_of(args);
  const auto bases = wire.regions.saved_bases() + row.source * args.max_local_experts;
  const int vectors = args.hidden / kPerVector;
  const Global<const Vec16> input(static_cast<const Vec16*>(args.y));
  for (int v = row.first_vector + lane_index(); v < row.last_vector; v += Target::kWarpSize) {
    float sum[kPerVector] = {};
    for (int r = 0; r < row.routes; ++r) {
      const Route route = load(routes + r);
      const std::int64_t place = load(bases + route.expert) + route.index;
      const Vec16 packed = load<Cache::streaming>(input + (place * vectors + v));
      float y[kPerVector];
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) y[i] = to_float(element<T>(packed, i));
      add_weighted<T>(sum, route.weight, y);
    }
    wire.write_return(row, v, rounded<T>(sum));
  }
}

/// [warp] At the source: the owners' sums of one token, added in rank order in fp32, rounded once. A token that went nowhere
/// gives zeros.
template <class T, class Wire>
FARWARP_DEVICE void sum_returns(Wire& wire, int token, int first_vector, int last_vector) {
  const Args& args = wire.args;
  const std::uint32_t ranks = destinations_of(wire.call, args, token);
  const Global<Vec16> out(static_cast<Vec16*>(args.out));
  const int vectors = args.hidden / kPerVector;
  for (int v = first_vector + lane_index(); v < last_vector; v += Target::kWarpSize) {
    Vec16 parts[kMaxRanks];
    if (!wire.read_returns(token, ranks, v, parts)) break;
    float sum[kPerVector] = {};
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) {
      if (!(ranks >> r & 1)) continue;
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) sum[i] = add(sum[i], to_float(element<T>(parts[r], i)));
    }
    store<Cache::streaming>(out + (static_cast<std::int64_t>(token) * vectors + v), rounded<T>(sum));
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
