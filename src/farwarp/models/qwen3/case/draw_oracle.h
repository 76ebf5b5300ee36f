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

/// The tokens that may be drawn with these logits at `position`. The first is the one that float64 gives. Others follow
/// where the random number, or top_p, is nearer to a boundary between two tokens than the roundings of fp32 explain.
std::vector<std::int32_t> oracle_draws(std::span<const float> logits, const Qwen3Sampling& sampling,
                                       std::uint32_t position);

/// Where the random number of a draw at position 0 lies, and what is kept.
enum class Aim : std::uint8_t {
  kBelow,     ///< just below a boundary between two tokens
  kAbove,     ///< just above one
  kKeptLast,  ///< at the last token that top_p keeps, which only just is not enough without it
  kKeptMore,  ///< at the last token that top_p keeps, as what precedes it only just does not reach top_p
  kLast,      ///< at the last of the top_k tokens
};
inline constexpr int kAims = 5;
/// `sampling` with another seed and top_p, so that the draw is aimed so. A draw without temperature stays as it is.
Qwen3Sampling aimed_sampling(Aim aim, std::span<const float> logits, const Qwen3Sampling& sampling);

/// The probability of each of the best top_k tokens, the best one first; 0 after what top_p keeps. `order` gets the
/// tokens.
std::vector<double> oracle_probabilities(std::span<const float> logits, const Qwen3Sampling& sampling,
                                         std::vector<std::int32_t>& order);

}  // namespace farwarp::qwen3
