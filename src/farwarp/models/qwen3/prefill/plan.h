// What a prefill of prompts multiplies and attends to, and the memory that it needs.
#pragma once

#include <cstdint>
#include <vector>

#include "farwarp/base/machine_shape.h"
#include "farwarp/models/qwen3/config.h"
#include "farwarp/ops/attention/plan.h"
#include "farwarp/ops/gemm/plan.h"
#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp {

/// A rank's products of up to `rows` tokens.
struct Qwen3PrefillProducts {
  int rows = 0;
  GemmDesc qkv, gate_up;
  GemmDesc out, down;  ///< several ranks add theirs up: over_ranks()
};

struct Qwen3PrefillPlan {
  int rows = 0;  ///< of a chunk; 0: no prefill, and the rest means nothing
  /// Of a whole chunk, then smaller ones: for a prompt's last chunk.
  std::vector<Qwen3PrefillProducts> products;
  AttentionDesc attention;             ///< of a chunk to all keys of its sequence
  std::int64_t unpacked_elements = 0;  ///< of the largest matrix of a layer
  std::int64_t key_rows = 0;           ///< of a sequence, for keys and for values
  std::int64_t memory_bytes = 0;       ///< of the device
  std::int64_t heap_bytes = 0;
};

/// What a prefill is for: sizes of a rank.
struct Qwen3PrefillRequest {
  int rows = 0;       ///< Qwen3Limits.prefill_tokens: 0, or 16 to 8,192
  int positions = 0;  ///< of a sequence
  int key_rows = 0;   ///< the same in whole pages
  int query_heads = 0, kv_heads = 0, intermediate = 0;
  int max_sms = 0;
  int ranks = 1;
};

/// The product of which `of_rank` is a rank's part.
ParallelGemmDesc over_ranks(const GemmDesc& of_rank, int ranks);

/// kInvalidArgument names what is wrong.
Result<Qwen3PrefillPlan> plan_qwen3_prefill(const Qwen3Config& config, const Qwen3PrefillRequest& request,
                                            const MachineShape& shape);

}  // namespace farwarp
