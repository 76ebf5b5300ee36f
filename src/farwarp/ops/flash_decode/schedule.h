// How a sequence's keys are cut into splits. Host and device compute it from the same functions.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"

namespace farwarp::decode {

inline constexpr int kStageShift = 6;
inline constexpr int kStageKeys = 1 << kStageShift;  ///< keys that are loaded and multiplied at once
inline constexpr int kLeastSplitStages = 2;          ///< a shorter split would cost more in the merge than it saves
inline constexpr int kUsualSplitStages =
    8;  ///< a longer split than this only where there are kMoreSplits times the target
inline constexpr int kMoreSplits = 4;
inline constexpr int kMaxSplits = 256;  ///< of a sequence
// Splits of an item are added in groups of four, then the groups. A work is one split, one group, or all splits; the
// bits are the same.
inline constexpr int kGroupShift = 2;
inline constexpr int kGroupSplits = 1 << kGroupShift;
inline constexpr int kAllShift = 8;
static_assert(kMaxSplits <= 1 << kAllShift);

/// A sequence's keys that any of its tokens sees, in stages, and how they are cut. Keys are counted from the first of
/// the sequence, and stages begin at multiples of kStageKeys.
struct SequenceSplits {
  std::int32_t first;   ///< the first stage
  std::int32_t stages;  ///< how many; 0: there are no keys
  std::int32_t chunk;   ///< stages of each split but the last
  std::int32_t splits;  ///< 1 or more; the only split of no keys is empty

  /// How many works of 1 << `work_shift` splits there are.
  constexpr std::int32_t works(std::int32_t work_shift) const { return (splits + (1 << work_shift) - 1) >> work_shift; }
  /// Of works of at most `share` stages: all splits if these are no more, else a group if that is.
  constexpr std::int32_t work_shift(float share) const {
    if (static_cast<float>(stages) <= share) return kAllShift;
    return static_cast<float>(chunk << kGroupShift) <= share ? kGroupShift : 0;
  }
};

/// The rule. It depends on a sequence's own length and on the descriptor, and on nothing else. So the order in which a
/// sequence's numbers are added does not depend on the batch or on the machine.
struct SplitRule {
  std::int32_t query_tokens;
  std::int32_t window;        ///< keys that a token sees, itself included; 0: all
  Divisor target;             ///< splits of a long sequence, which a very long one has kMoreSplits times
  std::int32_t fixed_stages;  ///< of a split; 0: by length

  constexpr SequenceSplits of(std::int32_t length) const {
    const std::int32_t oldest = window > 0 ? length - query_tokens + 1 - window : 0;
    const std::int32_t first = oldest > 0 ? oldest >> kStageShift : 0;
    const std::int32_t stages = ((length + kStageKeys - 1) >> kStageShift) - first;
    std::int32_t chunk = target.quotient(stages + target.value - 1);
    if (chunk < kLeastSplitStages) chunk = kLeastSplitStages;
    if (chunk > kUsualSplitStages) {
      chunk = target.quotient(stages + kMoreSplits * target.value - 1) / kMoreSplits;
      if (chunk < kUsualSplitStages) chunk = kUsualSplitStages;
    }
    if (fixed_stages > 0) chunk = fixed_stages;
    const auto splits =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(stages + chunk - 1) / static_cast<std::uint32_t>(chunk));
    return {first, stages, chunk, splits > 0 ? splits : 1};
  }
};

}  // namespace farwarp::decode
