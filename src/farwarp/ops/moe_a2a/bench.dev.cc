// What stands for the caller's grouped GEMM in the bench of the split form: y = x * scale[e] + shift[e] on the rows that
// dispatch delivered. It costs their traffic through HBM, and combine cannot look through it.
#include "farwarp/ops/moe_a2a/bench_args.h"
#include "farwarp/ops/moe_a2a/rows.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using farwarp::moe::BenchExpertArgs;

/// [thread] Vector `v` of dispatched row `row`.
template <class T>
FARWARP_DEVICE void dispatched(const BenchExpertArgs& args, std::int64_t row, int v, float (&values)[kPer<Vec16>]) {
  const int vectors = args.hidden / kPer<Vec16>;
  if (args.scales == nullptr) {
    const Global<const Vec16> x(static_cast<const Vec16*>(args.x));
    values_of<T>(load<Cache::streaming>(x + (row * vectors + v)), values);
    return;
  }
  constexpr int kVectors = kScaleGroup / kPer<Vec16>;  // of a group
  const Global<const std::uint64_t> x(static_cast<const std::uint64_t*>(args.x));
  const std::uint64_t bytes = load<Cache::streaming>(x + (row * vectors + v));
  const int groups = (vectors + kVectors - 1) / kVectors;
  const float scale = load(Global<const float>(args.scales) + (row * groups + v / kVectors));
  const Fp8Piece<8> piece{{static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(bytes >> 32)}, scale};
  values_of<T>(piece, values);
}

/// [thread] The expert whose room `row` lies in: the last that begins at or before it.
FARWARP_DEVICE int expert_of(const BenchExpertArgs& args, int row) {
  const Global<const std::int32_t> offsets(args.offsets);
  int low = 0, high = args.local_experts;  // offsets[low] <= row < offsets[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (load(offsets + middle) <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// A warp for each row, whichever its expert: experts one after the other would wait for memory once for each.
template <class T>
FARWARP_DEVICE void apply_to_expert_rows(const BenchExpertArgs& args) {
  constexpr int kAhead = 4;
  const int vectors = args.hidden / kPer<Vec16>, warps = num_threads() / Target::kWarpSize;
  const Global<Vec16> y(static_cast<Vec16*>(args.y));
  const int rows = load(Global<const std::int32_t>(args.offsets) + args.local_experts);
#pragma unroll 1
  for (int row = block_index() * warps + warp_index(); row < rows; row += num_blocks() * warps) {
    const int expert = expert_of(args, row);
    const int first = load(Global<const std::int32_t>(args.offsets) + expert);
    if (row - first >= load(Global<const std::int32_t>(args.counts) + expert)) continue;  // padding
    const float scale = load(Global<const float>(args.table) + 2 * expert);
    const float shift = load(Global<const float>(args.table) + (2 * expert + 1));
#pragma unroll 1
    for (int v = lane_index(); v < vectors; v += kAhead * kStride) {
      float values[kAhead][kPer<Vec16>];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (v + a * kStride < vectors) dispatched<T>(args, row, v + a * kStride, values[a]);
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (v + a * kStride >= vectors) break;
#pragma unroll
        for (int i = 0; i < kPer<Vec16>; ++i) values[a][i] = fused_multiply_add(values[a][i], scale, shift);
        store<Cache::streaming>(y + (static_cast<std::int64_t>(row) * vectors + v + a * kStride),
                                rounded<T, Vec16>(values[a]));
      }
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
