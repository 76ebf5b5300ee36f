// What a worker knows while it decodes a token, and its shared memory.
#pragma once

#include <limits>

#include "farwarp/fleet/stream.dev.h"
#include "farwarp/models/qwen3/shared_layout.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

using namespace farwarp::qwen3;
using namespace fleet;

inline constexpr float kNothing = -std::numeric_limits<float>::infinity();

template <int columns>
using Layout = SharedLayout<columns, Target::kHasBulkCopy>;

/// Keys that the token of a sequence attends to, its own included.
FARWARP_DEVICE int keys_of(const SequenceState& sequence) { return sequence.alive != 0 ? sequence.position + 1 : 0; }

template <class Word>
FARWARP_DEVICE Shared<Word> word_at(Shared<std::byte> memory, int offset) {
  return Shared<Word>(reinterpret_cast<Word*>((memory + offset).raw));
}

/// Packet `number` of the partial output of a split: head_dim / 2 pairs of fp32, then maximum and sum. In packets from args.partials.
FARWARP_DEVICE std::int64_t partial_at(const Args& args, int column, int head, int split, int number) {
  return ((std::int64_t{column} * args.query_heads + head) * args.splits + split) * (args.head_dim / 2 + 1) + number;
}

template <int columns>
struct Context {
  const Args& args;
  Call& call;  ///< its epoch is the tag of the token and layer
  Shared<std::byte> memory;
  Worker<columns> worker;

  /// Columns whose work in attention workers share: those that can have a sequence; of packets all, which are at most three more.
  FARWARP_DEVICE int columns_in_use() const {
    if constexpr (streams(columns)) return args.sequences;
    return columns;
  }
  FARWARP_DEVICE SequenceState sequence(int column) const {
    const Vec16 words = load(word_at<const Vec16>(memory, Layout<columns>::kSequences) + column);
    return std::bit_cast<SequenceState>(words);
  }
  FARWARP_DEVICE void set_sequence(int column, const SequenceState& state) const {
    store(word_at<Vec16>(memory, Layout<columns>::kSequences) + column, std::bit_cast<Vec16>(state));
  }
  FARWARP_DEVICE Global<const std::uint64_t> parameter(std::int64_t offset) const {
    return Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(args.weights + offset));
  }
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
