// The shared memory of a worker.
#pragma once

#include "farwarp/fleet/worker_shared.h"
#include "farwarp/models/qwen3/decode/args.h"

namespace farwarp::qwen3 {

constexpr int shared_columns(int columns) {
  return columns > fleet::kMaxPacketColumns ? columns : fleet::kMaxPacketColumns;
}
/// Bytes of each part of a decoder's own memory.
inline constexpr int kScoreBytes = fleet::kWarps * kMaxHeadDim * 4;
inline constexpr int kQueryBytes = kMaxGroup * kMaxHeadDim * 2;
inline constexpr int kStatisticBytes = fleet::kWarps * kMaxGroup * 8;
inline constexpr int kOutputBytes = fleet::kWarps * kMaxHeadDim * kMaxGroup * 4;
constexpr int own_bytes(int columns) {
  return kScoreBytes + kQueryBytes + kStatisticBytes + fleet::kWarps * 8 + 2 * kMaxHeadDim * 2 +
         (fleet::kWarps * 8 + 16) * shared_columns(columns);
}

/// In bytes from the begin.
template <int columns, bool bulk_copy>
struct SharedLayout : fleet::WorkerShared<columns, bulk_copy, own_bytes(columns), kOutputBytes> {
  using Worker = fleet::WorkerShared<columns, bulk_copy, own_bytes(columns), kOutputBytes>;

  /// [warps][head_dim][group] fp32, of a split: with a ring in its stages, else here.
  static constexpr int kOutputs = Worker::kBetween;
  /// Of a tile: [warps][group][16] fp32; of a merge: [warps][head_dim].
  static constexpr int kScores = Worker::kModel;
  static constexpr int kQueries = kScores + kScoreBytes;         ///< [group][head_dim] bf16
  static constexpr int kStatistics = kQueries + kQueryBytes;     ///< of a split: [warps][group] maximum, sum
  static constexpr int kMerged = kStatistics + kStatisticBytes;  ///< of a merge: [warps] the same
  static constexpr int kNewKey = kMerged + fleet::kWarps * 8;    ///< [head_dim] bf16
  static constexpr int kNewValue = kNewKey + kMaxHeadDim * 2;
  static constexpr int kBest = kNewValue + kMaxHeadDim * 2;  ///< [warps][columns]: logit, token
  static constexpr int kSequences = kBest + fleet::kWarps * shared_columns(columns) * 8;  ///< SequenceState [columns]
  static_assert(kSequences + shared_columns(columns) * 16 == Worker::kStop);
};
static_assert(kMaxGroup * kPageKeys == kMaxHeadDim);
static_assert(kMaxHeadDim * kMaxGroup * 4 <= fleet::kStageBytes && page_bytes(kMaxHeadDim) <= fleet::kStageBytes);

}  // namespace farwarp::qwen3
