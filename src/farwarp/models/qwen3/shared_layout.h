// The shared memory of a worker.
#pragma once

#include "farwarp/models/qwen3/args.h"

namespace farwarp::qwen3 {

/// In bytes from the begin.
template <int columns, bool bulk_copy>
struct SharedLayout {
  static constexpr int kProject = fleet::ring_bytes(bulk_copy);
  static constexpr int kScores =
      kProject + (fleet::ProjectShared<columns>::kBytes + 15) / 16 * 16;    ///< [group][keys] fp32, then the outputs
  static constexpr int kQueries = kScores + kMostGroup * kMostHeadDim * 4;  ///< [group][head_dim] bf16
  static constexpr int kProbabilities = kQueries + kMostGroup * kMostHeadDim * 2;  ///< [group][keys] bf16
  static constexpr int kNewKey = kProbabilities + kMostGroup * kSplitKeys * 2;     ///< [head_dim] bf16
  static constexpr int kNewValue = kNewKey + kMostHeadDim * 2;
  static constexpr int kBest = kNewValue + kMostHeadDim * 2;  ///< [warps][columns]: logit, token
  static constexpr int kHeadBest =
      kBest + fleet::kWarps * fleet::kMostColumns * 8;                        ///< [2][columns]: the same, of the worker
  static constexpr int kSequences = kHeadBest + 2 * fleet::kMostColumns * 8;  ///< SequenceState [columns]
  static constexpr int kStop =
      kSequences + fleet::kMostColumns * 16;  ///< a word: 1 if this launch ends with this token
  static constexpr int kDecided = kStop + 8;  ///< an mbarrier: tokens whose kStop is known
  static constexpr int kBytes = kDecided + 8;
};
static_assert(kSplitKeys == kMostHeadDim && kSplitKeys == fleet::kWarps * kPageKeys);

}  // namespace farwarp::qwen3
