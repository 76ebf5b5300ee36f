#include "farwarp/ops/moe_a2a/tensors.h"

#include "farwarp/base/overlap.h"

namespace farwarp::moe {

Status check_memory(const MoeAllToAllPlan& plan, int rank, const CallTensors& tensors) {
  constexpr int kScaled = 128;  // numbers that have one scale
  const MoeAllToAllDesc& desc = plan.desc;
  const MoeReceived& received = tensors.received;
  const bool rows = desc.layout == MoeLayout::kRows;
  const std::int64_t number = bytes_of(desc.dtype), index = bytes_of(desc.index_type), k = desc.experts_per_token;
  const std::int64_t sent = tensors.tokens.tokens_on_device != nullptr ? desc.max_tokens : tensors.tokens.tokens;
  const std::int64_t there = received.rows < 0 ? plan.recv_rows : received.rows;
  const std::int64_t local =
      moe_first_expert(rank + 1, plan.ranks, desc.num_experts) - moe_first_expert(rank, plan.ranks, desc.num_experts);
  const std::int64_t groups = (desc.hidden + kScaled - 1) / kScaled;
  const std::int64_t of_scale = desc.scales == MoeScales::kExponentColumns ? 1 : 4;
  const std::int64_t of_row = rows ? 2ll * plan.dispatch_hidden : desc.hidden * (desc.fp8_dispatch ? 1 : number);
  return check_apart({{"MoeTokens.x", tensors.tokens.x, sent * plan.dispatch_hidden * 2},
                      {"MoeTokens.topk_indices", tensors.tokens.topk_indices, sent * k * index},
                      {"MoeTokens.topk_weights", tensors.tokens.topk_weights, sent * k * 4},
                      {"MoeTokens.tokens_on_device", tensors.tokens.tokens_on_device, 4},
                      {"y", tensors.y, there * desc.hidden * number},
                      {"topk_weights", tensors.topk_weights, sent * k * 4},
                      {"MoeTokens.expert_counts", tensors.tokens.expert_counts, desc.num_experts * 4ll},
                      {"row_weights", tensors.row_weights, there * k * 4},
                      {"expert_table", tensors.expert_table, local * 8}},
                     {{"MoeReceived.x", received.x, there * of_row},
                      {"MoeReceived.counts", received.counts, local * 4},
                      {"MoeReceived.offsets", received.offsets, ((rows ? plan.ranks : local) + 1) * 4},
                      {"MoeReceived.origins", received.origins, there * 8},
                      {"MoeReceived.scales", received.scales, desc.fp8_dispatch ? there * groups * of_scale : 0},
                      {"MoeReceived.topk_indices", received.topk_indices, rows ? there * k * index : 0},
                      {"MoeReceived.topk_weights", received.topk_weights, rows ? there * k * 4 : 0},
                      {"MoeReceived.count_sums", received.count_sums, local * 4},
                      {"MoeReceived.handle", received.handle, plan.handle_bytes},
                      {"out", tensors.out, sent * (tensors.row_weights != nullptr ? k * 4 : desc.hidden * number)}});
}

}  // namespace farwarp::moe
