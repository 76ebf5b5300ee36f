// Which rank has which experts of a MoE layer.
#pragma once

namespace farwarp {

/// First expert of `rank`; of `ranks`: num_experts. ceil(rank * num_experts / ranks).
constexpr int moe_first_expert(int rank, int ranks, int num_experts) {
  return (rank * num_experts + ranks - 1) / ranks;
}
/// floor(expert * ranks / num_experts)
constexpr int moe_rank_of(int expert, int ranks, int num_experts) { return expert * ranks / num_experts; }

}  // namespace farwarp
