#include "farwarp/models/qwen3/prefill_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/base/arguments.h"

namespace farwarp {
namespace {

constexpr int kLeastRows = 16, kMostRows = 8192;
constexpr std::int64_t kHeapAlignment = 256;  // of World::allocate()

std::int64_t in_heap(std::int64_t bytes) { return (bytes + kHeapAlignment - 1) / kHeapAlignment * kHeapAlignment; }

Status check(int rows, int ranks) {
  if (rows != 0 && (rows < kLeastRows || rows > kMostRows))
    return invalid_argument(fmt::format("Qwen3Limits.prefill_tokens is {}; allowed: 0 (no prefill), {} to {}", rows,
                                        kLeastRows, kMostRows));
  if (rows != 0 && ranks != 1)
    return invalid_argument(
        fmt::format("Qwen3Limits.prefill_tokens is {} for {} ranks; allowed: 0, a prefill has one rank", rows, ranks));
  return {};
}

}  // namespace

Result<Qwen3PrefillPlan> plan_qwen3_prefill(const Qwen3Config& config, int rows, int positions, int key_rows,
                                            int max_sms, int ranks, const MachineShape& shape) {
  if (const Status status = check(rows, ranks); !status.ok()) return status;
  Qwen3PrefillPlan plan;
  plan.rows = rows;
  if (rows == 0) return plan;
  const int heads = config.query_heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const auto product = [&](int n, int k) {
    plan.unpacked_elements = std::max(plan.unpacked_elements, std::int64_t{n} * k);
    return GemmDesc{.m = rows, .n = n, .k = k, .max_sms = max_sms};
  };
  plan.qkv = product(heads + 2 * kv, config.hidden);
  plan.out = product(config.hidden, heads);
  plan.gate_up = product(2 * config.intermediate, config.hidden);
  plan.down = product(config.hidden, config.intermediate);
  plan.attention = {.batch = 1,
                    .heads = config.query_heads,
                    .kv_heads = config.kv_heads,
                    .head_dim = config.head_dim,
                    .max_queries = rows,
                    .max_keys = positions,
                    .causal = true,
                    .ragged_queries = true,
                    .total_queries = rows,
                    .has_key_counts = true,
                    .q_pitch = heads + 2 * kv,
                    .max_sms = max_sms};
  for (const GemmDesc* desc : {&plan.qkv, &plan.out, &plan.gate_up, &plan.down}) {
    const auto planned = plan_gemm(*desc, shape);
    if (!planned.ok()) return planned.status();
    plan.heap_bytes += in_heap(planned->workspace_bytes);
  }
  const auto attention = plan_attention(plan.attention, shape);
  if (!attention.ok()) return attention.status();
  plan.heap_bytes += in_heap(attention->workspace_bytes);
  plan.key_rows = key_rows;
  const std::int64_t of_row = 3 * config.hidden + (heads + 2 * kv) + heads + 3 * config.intermediate;
  plan.memory_bytes = 2 * (plan.unpacked_elements + rows * of_row + 2 * plan.key_rows * kv);
  return plan;
}

}  // namespace farwarp
