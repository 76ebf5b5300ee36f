// The expert kernel in the bench of the split form, in place of the caller's grouped GEMM: y = x * scale[e] + shift[e]
// on the rows that dispatch delivered. It reads and writes all rows in HBM, so combine has to read its outputs from
// there.
#include "farwarp/ops/moe_a2a/case/bench_args.h"
#include "farwarp/ops/moe_a2a/rows.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using farwarp::moe::BenchExpertArgs;

/// [thread] The values of vector `u` of dispatched row `row`.
template <class T>
FARWARP_DEVICE void dispatched(const BenchExpertArgs& args, std::int64_t row, int u,
                               float (&values)[kElementsPer<Vector>]) {
  const int vectors = args.hidden / kElementsPer<Vector>;
  if (args.scales == nullptr) {
    const Global<const Vector> x(static_cast<const Vector*>(args.x));
    values_of<T>(load<Cache::streaming>(x + (row * vectors + u)), values);
    return;
  }
  const Global<const std::uint64_t> x(static_cast<const std::uint64_t*>(args.x));
  const int groups = (vectors + kGroupVectors - 1) / kGroupVectors;
  const Fp8Vector vector{load<Cache::streaming>(x + (row * vectors + u)),
                         load(Global<const float>(args.scales) + (row * groups + u / kGroupVectors))};
  values_of<T>(vector, values);
}

/// [warp] The expert to which `row` belongs: the last one whose offset is at most `row`. Each lane loads an offset.
FARWARP_DEVICE int expert_of(const BenchExpertArgs& args, int row) {
  const Global<const std::int32_t> offsets(args.offsets);
  int begun = 0;  // offsets[0] is 0
#pragma unroll 1
  for (int first = 0; first < args.local_experts; first += Target::kWarpSize) {
    const int expert = first + lane_index();
    begun += count_bits(ballot(expert < args.local_experts && load(offsets + expert) <= row));
  }
  return begun - 1;
}

/// A warp takes one piece of a row, of any expert. A loop over experts would wait for memory once for each expert, and
/// a warp that takes a whole row once for every kAhead vectors of a lane.
template <class T>
FARWARP_DEVICE void apply_to_expert_rows(const BenchExpertArgs& args) {
  constexpr int kAhead = 4, kPiece = kAhead * kStride;
  const int vectors = args.hidden / kElementsPer<Vector>, warps = num_threads() / Target::kWarpSize;
  const int pieces = (vectors + kPiece - 1) / kPiece;
  const Global<Vector> y(static_cast<Vector*>(args.y));
  const int rows = load(Global<const std::int32_t>(args.offsets) + args.local_experts);
#pragma unroll 1
  for (int piece = block_index() * warps + warp_index(); piece < rows * pieces; piece += num_blocks() * warps) {
    const int row = piece / pieces, u = piece % pieces * kPiece + lane_index();
    float values[kAhead][kElementsPer<Vector>];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (u + a * kStride < vectors) dispatched<T>(args, row, u + a * kStride, values[a]);
    }
    const int expert = expert_of(args, row);
    const int first = load(Global<const std::int32_t>(args.offsets) + expert);
    const int count = load(Global<const std::int32_t>(args.counts) + expert);
    const float scale = load(Global<const float>(args.table) + 2 * expert);
    const float shift = load(Global<const float>(args.table) + (2 * expert + 1));
    if (row - first >= count) continue;  // padding
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (u + a * kStride >= vectors) break;
#pragma unroll
      for (int i = 0; i < kElementsPer<Vector>; ++i) values[a][i] = fused_multiply_add(values[a][i], scale, shift);
      store<Cache::streaming>(y + (static_cast<std::int64_t>(row) * vectors + u + a * kStride),
                              rounded<T, Vector>(values[a]));
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe

FARWARP_KERNEL(moe_a2a_bench_expert, farwarp::moe::BenchExpertArgs, farwarp::moe::kBenchExpertThreads) {
  if (args.bf16 != 0) {
    farwarp::FARWARP_TARGET::moe::apply_to_expert_rows<farwarp::Bf16>(args);
  } else {
    farwarp::FARWARP_TARGET::moe::apply_to_expert_rows<farwarp::Half>(args);
  }
}
