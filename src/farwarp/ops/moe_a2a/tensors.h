// The tensors of a call of the MoE all-to-all, whose memory must be apart.
#pragma once

#include "farwarp/ops/moe_a2a/moe_a2a.h"

namespace farwarp::moe {

/// Those of one launch; null where it has none.
struct CallTensors {
  MoeTokens tokens{};  ///< of a combine the indices and the count of its dispatch, which it reads again
  MoeReceived received{};
  const void* y = nullptr;
  const float* topk_weights = nullptr;  ///< of a combine
  const float* row_weights = nullptr;   ///< of return_row_weights(), whose `out` are their sums
  const float* expert_table = nullptr;
  void* out = nullptr;
};

/// kInvalidArgument if a result shares memory with an input or with another result.
Status check_memory(const MoeAllToAllPlan& plan, int rank, const CallTensors& tensors);

}  // namespace farwarp::moe
