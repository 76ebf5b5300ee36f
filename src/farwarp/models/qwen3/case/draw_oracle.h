// The oracle of a draw: which token it must give, in float64. It shares no code with the kernels.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/models/qwen3/qwen3.h"

namespace farwarp::qwen3 {

/// The first word of Philox4x32-10 for the counter (position, 0, 0, 0).
std::uint32_t oracle_random(std::uint64_t seed, std::uint32_t position);

/// The tokens that may be drawn with these logits at `position`. The first is the one that float64 gives. Others follow where the random number, or
/// top_p, is nearer to a boundary between two tokens than the roundings of fp32 explain.
std::vector<std::int32_t> oracle_draws(std::span<const float> logits, const Qwen3Sampling& sampling,
                                       std::uint32_t position);

/// The probability of each of the best top_k tokens, the best one first; 0 after what top_p keeps. `order` gets the tokens.
std::vector<double> oracle_probabilities(std::span<const float> logits, const Qwen3Sampling& sampling,
                                         std::vector<std::int32_t>& order);

}  // namespace farwarp::qwen3
