// The shared memory of a worker.
#pragma once

#include "farwarp/models/qwen3/args.h"

namespace farwarp::qwen3 {

/// In bytes from the begin.
template <int columns, bool bulk_copy>
struct SharedLayout {
  static constexpr int kProject = fleet::ring_bytes(columns, bulk_copy);
  static constexpr int kScores =
      kProject + (fleet::ProjectShared<columns, bulk_copy>::kBytes + 15) / 16 *
                     16;  ///< of a tile: [warps][group][16] fp32; of a merge: [warps][head_dim]
  static constexpr int kQueries = kScores + fleet::kWarps * kMostHeadDim * 4;  ///< [group][head_dim] bf16
  static constexpr int kStatistics =
      kQueries + kMostGroup * kMostHeadDim * 2;  ///< [warps][group] maximum, sum: of a split
  static constexpr int kMerged = kStatistics + fleet::kWarps * kMostGroup * 8;  ///< [warps] the same, of a merge
  static constexpr int kNewKey = kMerged + fleet::kWarps * 8;                   ///< [head_dim] bf16
  static constexpr int kNewValue = kNewKey + kMostHeadDim * 2;
  static constexpr int kBest = kNewValue + kMostHeadDim * 2;  ///< [warps][columns]: logit, token
  static constexpr int kSequences = kBest + fleet::kWarps * fleet::kMostColumns * 8;  ///< SequenceState [columns]
  static constexpr int kStop =
      kSequences + fleet::kMostColumns * 16;                    ///< a word: 1 if this launch ends with this token
  static constexpr int kDecided = kStop + 8;                    ///< an mbarrier: tokens whose kStop is known
  static constexpr int kTasks = (kDecided + 8 + 15) / 16 * 16;  ///< tasks that the loading thread hands over
  static constexpr int kOutputs =
      kTasks + (bulk_copy
                    ? fleet::kTaskRingBytes
                    : 0);  ///< without a ring: [warps][head_dim][group] fp32, of a split; else they are in its stages
  static constexpr int kBytes = kOutputs + (bulk_copy ? 0 : fleet::kWarps * kMostHeadDim * kMostGroup * 4);
};
static_assert(SharedLayout<8, true>::kBytes <= 232448 && SharedLayout<4, true>::kBytes <= 232448 &&
              SharedLayout<1, true>::kBytes <= 232448);
static_assert(kMostGroup * kPageKeys == kMostHeadDim);
static_assert(kMostHeadDim * kMostGroup * 4 <= fleet::kStageBytes && page_bytes(kMostHeadDim) <= fleet::kStageBytes);

}  // namespace farwarp::qwen3
