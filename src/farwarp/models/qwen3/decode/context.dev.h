// What a worker knows while it decodes a token, and its shared memory.
#pragma once

#include <limits>

#include "farwarp/fleet/context.dev.h"
#include "farwarp/models/qwen3/decode/shared_layout.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

using namespace farwarp::qwen3;
using namespace fleet;

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <int columns>
using Layout = SharedLayout<columns, Target::kHasBulkCopy>;

/// Keys that the token of a sequence attends to, its own included.
FARWARP_DEVICE int keys_of(const SequenceState& sequence) { return sequence.alive != 0 ? sequence.position + 1 : 0; }

/// Four `four` of the partial output of a split: head_dim / 2 pairs of fp32, then maximum and sum. In fours from the
/// partial outputs' begin.
FARWARP_DEVICE std::int64_t partial_at(const Args& args, int column, int head, int split, int four) {
  return ((std::int64_t{column} * args.query_heads + head) * args.splits + split) * (args.head_dim / 2 + 1) + four;
}

template <int columns>
struct Context : WorkerContext<Args, columns> {
  using WorkerContext<Args, columns>::args;
  using WorkerContext<Args, columns>::memory;

  /// Qwen3Plan::columns_in_use(): of packets a constant.
  FARWARP_DEVICE int columns_in_use() const {
    if constexpr (streams(columns)) return args.columns_in_use;
    return columns;
  }
  FARWARP_DEVICE SequenceState sequence(int column) const {
    const Vec16 words = load(word_at<const Vec16>(memory, Layout<columns>::kSequences) + column);
    return std::bit_cast<SequenceState>(words);
  }
  FARWARP_DEVICE void set_sequence(int column, const SequenceState& state) const {
    store(word_at<Vec16>(memory, Layout<columns>::kSequences) + column, std::bit_cast<Vec16>(state));
  }
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
