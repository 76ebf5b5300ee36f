// What callers may ask a decoder for when they create it. The library's checks and the command line's options have
// these limits from here; those that kernels are compiled with are in decode/args.h and fleet/layout.h.
#pragma once

#include <bit>

#include "farwarp/world/view.h"

namespace farwarp::qwen3 {

inline constexpr int kMaxPositions = 1 << 20;   ///< of a sequence
inline constexpr int kLeastPrefillTokens = 16;  ///< of a chunk of a prompt
inline constexpr int kMaxPrefillTokens = 8192;
// A temperature that is not 0 (greedy).
inline constexpr float kLeastTemperature = 0.001f;
inline constexpr float kMaxTemperature = 1000;

/// 1, 2, 4 or 8.
constexpr bool can_share(int ranks) {
  return ranks >= 1 && ranks <= kMaxRanks && std::has_single_bit(static_cast<unsigned>(ranks));
}

}  // namespace farwarp::qwen3
