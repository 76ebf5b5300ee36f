// What stands for the caller's grouped GEMM in the bench of the split form: y = x * scale[e] + shift[e] on the rows that
// dispatch delivered. It costs their traffic through HBM, and combine cannot look through it.
#include "farwarp/ops/moe_a2a/bench_args.h"
#include "farwarp/ops/moe_a2a/rows.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using farwarp::moe::BenchExpertArgs;

template <class T>
FARWARP_DEVICE void apply_to_expert_rows(const BenchExpertArgs& args) {
  const std::int64_t vectors = args.hidden / kPer<Vec16>;
  const Global<const Vec16> x(static_cast<const Vec16*>(args.x));
  const Global<Vec16> y(static_cast<Vec16*>(args.y));
  const std::int64_t stride = static_cast<std::int64_t>(num_blocks()) * num_threads();
  for (int expert = 0; expert < args.local_experts; ++expert) {
    const float scale = load(Global<const float>(args.table) + 2 * expert);
    const float shift = load(Global<const float>(args.table) + (2 * expert + 1));
    const std::int64_t first = load(Global<const std::int32_t>(args.offsets) + expert) * vectors;
    const std::int64_t count = load(Global<const std::int32_t>(args.counts) + expert) * vectors;
    for (std::int64_t v = static_cast<std::int64_t>(block_index()) * num_threads() + thread_index(); v < count;
         v += stride) {
      const Vec16 in = load<Cache::streaming>(x + (first + v));
      float out[kPer<Vec16>];
#pragma unroll
      for (int i = 0; i < kPer<Vec16>; ++i) out[i] = fused_multiply_add(to_float(element<T>(in, i)), scale, shift);
      store<Cache::streaming>(y + (first + v), rounded<T, Vec16>(out));
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
