#include "farwarp/models/qwen3/prefill/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/models/qwen3/limits.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/plan.h"

namespace farwarp {
namespace {

constexpr int kSizes = 3, kSmaller = 4;       // of products: each has a quarter of the rows of the one before
constexpr std::int64_t kHeapAlignment = 256;  // of World::allocate()

std::int64_t in_heap(std::int64_t bytes) { return (bytes + kHeapAlignment - 1) / kHeapAlignment * kHeapAlignment; }

/// Adds the heap that the operators take.
Status plan_operators(Qwen3PrefillPlan& plan, int ranks, const MachineShape& shape) {
  for (const Qwen3PrefillProducts& products : plan.products) {
    for (const GemmDesc* desc : {&products.qkv, &products.gate_up, &products.out, &products.down}) {
      if (ranks > 1 && (desc == &products.out || desc == &products.down)) {
        const auto planned = plan_gemm_all_reduce(over_ranks(*desc, ranks), shape, ranks);
        if (!planned.ok()) return planned.status();
        plan.heap_bytes += planned->heap_bytes();
      } else {
        const auto planned = plan_gemm(*desc, shape);
        if (!planned.ok()) return planned.status();
        plan.heap_bytes += in_heap(planned->workspace_bytes);
      }
    }
  }
  const auto attention = plan_attention(plan.attention, shape);
  if (!attention.ok()) return attention.status();
  plan.heap_bytes += in_heap(attention->workspace_bytes);
  return {};
}

}  // namespace

ParallelGemmDesc over_ranks(const GemmDesc& of_rank, int ranks) {
  return {.m = of_rank.m, .n = of_rank.n, .k = of_rank.k * ranks, .max_sms = of_rank.max_sms};
}

Result<Qwen3PrefillPlan> plan_qwen3_prefill(const Qwen3Config& config, const Qwen3PrefillRequest& request,
                                            const MachineShape& shape) {
  const int rows = request.rows;
  if (rows != 0 && (rows < qwen3::kLeastPrefillTokens || rows > qwen3::kMaxPrefillTokens))
    return invalid_argument(fmt::format("Qwen3Limits.prefill_tokens is {}; allowed: 0 (no prefill), {} to {}", rows,
                                        qwen3::kLeastPrefillTokens, qwen3::kMaxPrefillTokens));
  Qwen3PrefillPlan plan;
  plan.rows = rows;
  if (rows == 0) return plan;
  const int heads = request.query_heads * config.head_dim, kv = request.kv_heads * config.head_dim;
  for (int m = rows; m >= qwen3::kLeastPrefillTokens && static_cast<int>(plan.products.size()) < kSizes;
       m /= kSmaller) {
    const auto product = [&](int n, int k) {
      plan.unpacked_elements = std::max(plan.unpacked_elements, std::int64_t{n} * k);
      return GemmDesc{.m = m, .n = n, .k = k, .max_sms = request.max_sms};
    };
    plan.products.push_back({.rows = m,
                             .qkv = product(heads + 2 * kv, config.hidden),
                             .gate_up = product(2 * request.intermediate, config.hidden),
                             .out = product(config.hidden, heads),
                             .down = product(config.hidden, request.intermediate)});
  }
  plan.attention = {.batch = 1,
                    .heads = request.query_heads,
                    .kv_heads = request.kv_heads,
                    .head_dim = config.head_dim,
                    .max_queries = rows,
                    .max_keys = request.positions,
                    .causal = true,
                    .ragged_queries = true,
                    .total_queries = rows,
                    .has_key_counts = true,
                    .q_pitch = heads + 2 * kv,
                    .max_sms = request.max_sms};
  if (const Status status = plan_operators(plan, request.ranks, shape); !status.ok()) return status;
  plan.key_rows = request.key_rows;
  const std::int64_t of_row = 3 * config.hidden + (heads + 2 * kv) + heads + 3 * request.intermediate;
  plan.memory_bytes = 2 * (plan.unpacked_elements + rows * of_row + 2 * plan.key_rows * kv);
  return plan;
}

}  // namespace farwarp
