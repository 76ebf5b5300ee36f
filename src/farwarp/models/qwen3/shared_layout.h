// The shared memory of a worker.
#pragma once

#include "farwarp/fleet/gang.h"
#include "farwarp/models/qwen3/args.h"

namespace farwarp::qwen3 {

/// In bytes from the begin.
template <int columns, bool bulk_copy>
struct SharedLayout {
  using Project = fleet::ProjectShared<columns, bulk_copy>;
  static constexpr int kOutputBytes = fleet::kWarps * kMostHeadDim * kMostGroup * 4;
  static constexpr int longer(int a, int b) { return ((a > b ? a : b) + 15) & ~15; }

  static constexpr int kProject = fleet::ring_bytes(columns, bulk_copy);
  /// [warps][head_dim][group] fp32, of a split: with a ring in its stages, else where vectors wait, of which attention has none.
  static constexpr int kOutputs = kProject + Project::vector(0);
  /// Of a tile: [warps][group][16] fp32; of a merge: [warps][head_dim].
  static constexpr int kScores = kProject + longer(Project::kBytes, bulk_copy ? 0 : Project::vector(0) + kOutputBytes);
  static constexpr int kQueries = kScores + fleet::kWarps * kMostHeadDim * 4;  ///< [group][head_dim] bf16
  static constexpr int kStatistics =
      kQueries + kMostGroup * kMostHeadDim * 2;  ///< of a split: [warps][group] maximum, sum
  static constexpr int kMerged = kStatistics + fleet::kWarps * kMostGroup * 8;  ///< of a merge: [warps] the same
  static constexpr int kNewKey = kMerged + fleet::kWarps * 8;                   ///< [head_dim] bf16
  static constexpr int kNewValue = kNewKey + kMostHeadDim * 2;
  static constexpr int kBest = kNewValue + kMostHeadDim * 2;  ///< [warps][columns]: logit, token
  static constexpr int kColumns = columns > fleet::kMostPacketColumns ? columns : fleet::kMostPacketColumns;
  static constexpr int kSequences = kBest + fleet::kWarps * kColumns * 8;  ///< SequenceState [columns]
  static constexpr int kStop = kSequences + kColumns * 16;  ///< a word: 1 if this launch ends with this token
  static constexpr int kDecided = kStop + 8;                ///< an mbarrier: tokens whose kStop is known
  static constexpr int kTasks = (kDecided + 8 + 15) / 16 *
                                16;  ///< tasks that the loading thread hands over; where there is none, what gang knows
  static constexpr int kBytes = kTasks + (bulk_copy ? fleet::kTaskRingBytes : fleet::kGangPlaceBytes);
};
static_assert(SharedLayout<16, true>::kBytes <= 232448 && SharedLayout<32, true>::kBytes <= 232448 &&
              SharedLayout<64, true>::kBytes <= 232448);
static_assert(SharedLayout<16, false>::kBytes <= 65536 && SharedLayout<32, false>::kBytes <= 65536);
static_assert(SharedLayout<8, true>::kBytes <= 232448 && SharedLayout<4, true>::kBytes <= 232448 &&
              SharedLayout<1, true>::kBytes <= 232448);
static_assert(SharedLayout<8, false>::kBytes <= 65536 && SharedLayout<4, false>::kBytes <= 65536);
static_assert(kMostGroup * kPageKeys == kMostHeadDim);
static_assert(kMostHeadDim * kMostGroup * 4 <= fleet::kStageBytes && page_bytes(kMostHeadDim) <= fleet::kStageBytes);

}  // namespace farwarp::qwen3
