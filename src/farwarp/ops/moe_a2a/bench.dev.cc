// What stands for the caller's grouped GEMM in the bench of the split form: y = x * scale[e] + shift[e] on the rows that
// dispatch delivered. It costs their traffic through HBM, and combine cannot look through it.
#include "farwarp/ops/moe_a2a/bench_args.h"
#include "farwarp/ops/moe_a2a/rows.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using farwarp::moe::BenchExpertArgs;

/// [thread] Vector `v` of the dispatched rows from `row` on.
template <class T>
FARWARP_DEVICE void dispatched(const BenchExpertArgs& args, std::int64_t row, std::uint32_t v,
                               float (&values)[kPer<Vec16>]) {
  const auto vectors = static_cast<std::uint32_t>(args.hidden / kPer<Vec16>);  // of a row
  const std::int64_t place = row * vectors + v;
  if (args.scales == nullptr) {
    const Global<const Vec16> x(static_cast<const Vec16*>(args.x));
    values_of<T>(load<Cache::streaming>(x + place), values);
    return;
  }
  constexpr std::uint32_t kVectors = kScaleGroup / kPer<Vec16>;  // of a group
  const std::uint32_t below = v / vectors, group = (v - below * vectors) / kVectors;
  const std::int64_t groups = (vectors + kVectors - 1) / kVectors;
  const std::uint64_t bytes =
      load<Cache::streaming>(Global<const std::uint64_t>(static_cast<const std::uint64_t*>(args.x)) + place);
  const float scale = load(Global<const float>(args.scales) + ((row + below) * groups + group));
  const Fp8Piece<8> piece{{static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(bytes >> 32)}, scale};
  values_of<T>(piece, values);
}

template <class T>
FARWARP_DEVICE void apply_to_expert_rows(const BenchExpertArgs& args) {
  const int vectors = args.hidden / kPer<Vec16>;
  const Global<Vec16> y(static_cast<Vec16*>(args.y));
  const auto stride = static_cast<std::uint32_t>(num_blocks() * num_threads());
  const auto mine = static_cast<std::uint32_t>(block_index() * num_threads() + thread_index());
  for (int expert = 0; expert < args.local_experts; ++expert) {
    const float scale = load(Global<const float>(args.table) + 2 * expert);
    const float shift = load(Global<const float>(args.table) + (2 * expert + 1));
    const std::int64_t row = load(Global<const std::int32_t>(args.offsets) + expert);
    const auto count = static_cast<std::uint32_t>(load(Global<const std::int32_t>(args.counts) + expert) * vectors);
    for (std::uint32_t v = mine; v < count; v += stride) {
      float out[kPer<Vec16>];
      dispatched<T>(args, row, v, out);
#pragma unroll
      for (int i = 0; i < kPer<Vec16>; ++i) out[i] = fused_multiply_add(out[i], scale, shift);
      store<Cache::streaming>(y + (row * vectors + v), rounded<T, Vec16>(out));
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
