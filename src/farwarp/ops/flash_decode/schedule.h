// How a sequence's keys are cut into splits. Host and device compute it from the same functions.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"

namespace farwarp::decode {

inline constexpr int kStageShift = 6;
inline constexpr int kStageKeys = 1 << kStageShift;  ///< keys that are loaded and multiplied at once
inline constexpr int kLeastSplitStages = 2;          ///< a shorter split would cost more in the merge than it saves
inline constexpr int kMostSplits = 128;              ///< of a sequence
inline constexpr int kGroupShift = 2;
inline constexpr int kGroupSplits = 1 << kGroupShift;  ///< that are merged first; a work is a split, or such a group

/// A sequence's keys that any of its tokens sees, in stages, and how they are cut. Keys are counted from the first of the sequence, and
/// stages begin at multiples of kStageKeys.
struct SequenceSplits {
  std::int32_t first;           ///< the first stage
  std::int32_t stages;          ///< how many; 0: there are no keys
  std::int32_t chunk;           ///< stages of each split but the last
  std::int32_t splits;          ///< 1 or more; the only split of no keys is empty
  std::int32_t split_partials;  ///< partial outputs of each split but the last, which may have fewer

  /// Partial outputs of a split of `count` stages. Without stages there is an empty one.
  constexpr std::int32_t partials_of(std::int32_t count) const {
    return count < 1 ? 1 : count < split_partials ? count : split_partials;
  }
  /// How many works of 1 << `work_shift` splits there are.
  constexpr std::int32_t works(std::int32_t work_shift) const { return (splits + (1 << work_shift) - 1) >> work_shift; }
  /// Of all works. A work has as many as its first split.
  constexpr std::int32_t partials(std::int32_t work_shift) const {
    const std::int32_t before = works(work_shift) - 1, rest = stages - (before * chunk << work_shift);
    return before * split_partials + partials_of(rest < chunk ? rest : chunk);
  }
};

/// The rule. It depends on a sequence's own length and on the descriptor, and on nothing else. So the order in which a sequence's numbers
/// are added does not depend on the batch or on the machine.
struct SplitRule {
  std::int32_t query_tokens;
  std::int32_t window;        ///< keys that a token sees, itself included; 0: all
  Divisor most_splits;        ///< 1 to kMostSplits
  std::int32_t fixed_stages;  ///< of a split; 0: by length
  std::int32_t multipliers;   ///< that share a split's stages: each stores a partial output

  constexpr SequenceSplits of(std::int32_t length) const {
    const std::int32_t oldest = window > 0 ? length - query_tokens + 1 - window : 0;
    const std::int32_t first = oldest > 0 ? oldest >> kStageShift : 0;
    const std::int32_t stages = ((length + kStageKeys - 1) >> kStageShift) - first;
    std::int32_t chunk = most_splits.quotient(stages + most_splits.value - 1);
    if (chunk < kLeastSplitStages) chunk = kLeastSplitStages;
    if (fixed_stages > 0) chunk = fixed_stages;
    const auto splits =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(stages + chunk - 1) / static_cast<std::uint32_t>(chunk));
    return {first, stages, chunk, splits > 0 ? splits : 1, chunk < multipliers ? chunk : multipliers};
  }
};

}  // namespace farwarp::decode
