// The shapes of a dense Qwen3.
#pragma once

#include <cstdint>
#include <string_view>

#include "farwarp/base/status.h"

namespace farwarp {

/// As in a Hugging Face config.json (Qwen3ForCausalLM); bf16.
struct Qwen3Config {
  int hidden = 0;        ///< hidden_size: a multiple of 256, up to 5120, that of 32B: none larger was tried
  int layers = 0;        ///< num_hidden_layers
  int query_heads = 0;   ///< num_attention_heads; query_heads * head_dim is a multiple of 256
  int kv_heads = 0;      ///< num_key_value_heads; divides query_heads, which are at most 8 times as many
  int head_dim = 0;      ///< 64 or 128
  int intermediate = 0;  ///< intermediate_size: a multiple of 256
  int vocabulary = 0;    ///< vocab_size
  float epsilon = 1e-6f;
  float rope_theta = 1e6f;
  bool tied = false;  ///< the head is the embedding

  /// kInvalidArgument names the field, its value and what is allowed.
  Status check() const;
};

/// "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"; "nano", "tiny", "tiny64" (head_dim 64)
/// "nano4" (up to 4 ranks) and "nano8" (up to 8) for tests. An error lists them.
Result<Qwen3Config> qwen3_config(std::string_view name);

}  // namespace farwarp
