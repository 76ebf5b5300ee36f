// A Qwen3 in the files of Hugging Face: config.json, and which tensor has which name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farwarp/models/qwen3/config.h"

namespace farwarp {

class Safetensors;

/// Of `folder`/config.json. kInvalidArgument names the field, its value and what is allowed.
Result<Qwen3Config> read_qwen3_config(const std::string& folder);

/// What the model's maker wants of an answer.
struct Qwen3Generation {
  std::vector<std::int32_t> end_tokens;
  // Of draws, as Qwen3Sampling has them, but for a top_k that may be 0 (no limit) or more than a decoder can do. The
  // caller decides whether to draw.
  float temperature = 0;  ///< 0: the best token
  int top_k = 0;
  float top_p = 1;
};

/// Of `folder`/generation_config.json, or config.json if there is none, as transformers does. Refuses, as above, what
/// would change tokens otherwise (repetition_penalty, min_length, bad_words_ids, ...).
Result<Qwen3Generation> read_qwen3_generation(const std::string& folder, const Qwen3Config& config);

/// Refuses a head of its own in the files of a model whose head is the embedding.
Status check_qwen3_tie(const Safetensors& files, const Qwen3Config& config);

namespace qwen3 {
/// `tensor`: tensor_number().
std::string tensor_name(int tensor, int layers);
}  // namespace qwen3

}  // namespace farwarp
