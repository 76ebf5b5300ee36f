// What a prefill of prompts multiplies and attends to, and the memory that it needs.
#pragma once

#include <cstdint>

#include "farwarp/base/machine_shape.h"
#include "farwarp/models/qwen3/config.h"
#include "farwarp/ops/attention/plan.h"
#include "farwarp/ops/gemm/plan.h"

namespace farwarp {

/// Products of a chunk of `rows` tokens, and its attention to all keys of its sequence.
struct Qwen3PrefillPlan {
  int rows = 0;  ///< 0: no prefill, and the rest means nothing
  GemmDesc qkv, out, gate_up, down;
  AttentionDesc attention;
  std::int64_t unpacked_elements = 0;  ///< of the largest matrix of a layer
  std::int64_t key_rows = 0;           ///< of a sequence, for keys and for values
  std::int64_t memory_bytes = 0;       ///< of the device
  std::int64_t heap_bytes = 0;
};

/// `rows`: Qwen3Limits.prefill_tokens, 0 or 16 to 8,192. `key_rows`: `positions` in whole pages. kInvalidArgument names what is wrong.
Result<Qwen3PrefillPlan> plan_qwen3_prefill(const Qwen3Config& config, int rows, int positions, int key_rows,
                                            int max_sms, int ranks, const MachineShape& shape);

}  // namespace farwarp
