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
inline constexpr int kQueryBytes = kMaxHeadsPerKvHead * kMaxHeadDim * 2;
inline constexpr int kStatisticBytes = fleet::kWarps * kMaxHeadsPerKvHead * 8;
inline constexpr int kOutputBytes = fleet::kWarps * kMaxHeadDim * kMaxHeadsPerKvHead * 4;
constexpr int own_bytes(int columns) {
  return kScoreBytes + kQueryBytes + kStatisticBytes + fleet::kWarps * 8 + 2 * kMaxHeadDim * 2 +
         (fleet::kWarps * 8 + 16) * shared_columns(columns);
}

/// In bytes from the begin.
template <int columns, bool bulk_copy>
struct SharedLayout : fleet::WorkerShared<columns, bulk_copy, own_bytes(columns), kOutputBytes> {
  using Base = fleet::WorkerShared<columns, bulk_copy, own_bytes(columns), kOutputBytes>;

  /// [warps][head_dim][heads] fp32, of a split: with a ring in its slots, else here. `heads`: of a KV head.
  static constexpr int kOutputs = Base::kBetween;
  /// Of a key block: [warps][heads][16] fp32; of a merge: [warps][head_dim]; of the head, streamed: [threads] logit,
  /// token; of a draw: [warps][kMaxTopK] the same.
  static constexpr int kScores = Base::kModel;
  static constexpr int kQueries = kScores + kScoreBytes;         ///< [heads][head_dim] bf16
  static constexpr int kStatistics = kQueries + kQueryBytes;     ///< of a split: [warps][heads] maximum, sum
  static constexpr int kMerged = kStatistics + kStatisticBytes;  ///< of a merge: [warps] the same
  static constexpr int kNewKey = kMerged + fleet::kWarps * 8;    ///< [head_dim] bf16
  static constexpr int kNewValue = kNewKey + kMaxHeadDim * 2;
  static constexpr int kBest = kNewValue + kMaxHeadDim * 2;  ///< [warps][columns]: logit, token
  static constexpr int kSequences = kBest + fleet::kWarps * shared_columns(columns) * 8;  ///< SequenceState [columns]
  static_assert(kSequences + shared_columns(columns) * 16 == Base::kStop);
};
static_assert(kMaxHeadsPerKvHead * kPageKeys == kMaxHeadDim);
static_assert(kMaxHeadDim * kMaxHeadsPerKvHead * 4 <= fleet::kSliceBytes &&
              page_bytes(kMaxHeadDim) <= fleet::kSliceBytes);

}  // namespace farwarp::qwen3
