// What host and device share of lesson 04: the rungs, the argument block, and the layout of the workspace.
#pragma once

#include <cstdint>

#include "farwarp/world/view.h"

namespace farwarp::lessons::ladder {

/// A rung uses its own idea and those of all lower rungs: code asks `rung >= kFused`.
enum Idea : int {
  kRankFlags = 1,  ///< three kernels; a flag per pair of ranks; reset and barrier before each call
  kTokenFlags,     ///< a flag per row
  kFused,          ///< one kernel
  kEpochs,         ///< nothing is reset, no barrier
  kRankDedup,      ///< a token crosses once for each rank, and the sum of its weighted outputs there returns as one row
  kPackets,        ///< data and tag in one store, no flags, no fences
  kTogether,       ///< packets of many rows polled together
};
inline constexpr int kRungs = 7;
inline constexpr const char* kRungNames[kRungs + 1] = {
    "", "1 rank flags", "2 token flags", "3 fused", "4 epochs", "5 rank dedup", "6 packets", "7 polled together"};

inline constexpr int kThreads = 256;
inline constexpr int kMaxTopK = 32;  ///< a lane for each

/// Wait sites and complaints, as the ledger names them.
enum Site : std::uint32_t { kSiteCount, kSiteMessage, kSiteReturn, kSiteRoom, kSites };
inline constexpr const char* kSiteNames[kSites] = {"message count", "message", "return", "room for messages"};

/// Shared memory of a block: the number of messages of each source, then each warp's weights.
inline constexpr int kSharedWeights = 4 * kMaxRanks;
inline constexpr int kSharedBytes = kSharedWeights + kThreads / 32 * kMaxTopK * 4;

/// What all ranks agree on.
struct Shape {
  std::int32_t ranks;
  std::int32_t num_experts;  ///< expert e lives on rank floor(e * ranks / num_experts)
  std::int32_t k;
  std::int32_t hidden;
  std::int32_t max_tokens;
  std::int32_t segments;  ///< equal parts of a row; a warp sends, works on or sums one of them at a time
};

/// Number of a token's places for returned rows: one for each top-k entry, or one for each rank.
constexpr int places_of(const Shape& shape, int rung) { return rung >= kRankDedup ? shape.ranks : shape.k; }
/// A message begins with its head, in words of 8 bytes: entries << 32 | segment << 16 | token, then two weights in each
/// word.
constexpr int head_words_of(const Shape& shape) { return 1 + (shape.k + 1) / 2; }
constexpr int most_messages_of(const Shape& shape, int rung) {
  return shape.max_tokens * shape.segments * (rung >= kRankDedup ? 1 : shape.k);
}

/// Offsets in bytes from the workspace's start, in every rank's heap. From kEpochs on there are two copies of what
/// peers write, for even and odd epochs.
struct Layout {
  std::int64_t counters;       ///< u32 [2][ranks]: messages that this rank has placed at each rank
  std::int64_t blocks_done;    ///< u32 [2]: kRankFlags: blocks that have dispatched, and that have returned
  std::int64_t cells;          ///< where the u64 cells begin, which are the next four
  std::int64_t counts;         ///< [2][ranks]: how many messages a source sends here
  std::int64_t done;           ///< [ranks]: kRankFlags: set when an owner has returned everything
  std::int64_t message_flags;  ///< [2][ranks][messages]
  std::int64_t return_flags;   ///< [2][tokens][places][segments]
  std::int64_t cells_end;
  std::int64_t messages;  ///< [2][ranks][messages] of message_bytes
  std::int64_t message_bytes;
  std::int64_t message_data;  ///< offset of a message's data from its start
  std::int64_t returns;       ///< [2][tokens][places] rows
  std::int64_t total;
};

constexpr Layout layout_of(const Shape& shape, int rung) {
  const std::int64_t parities = rung >= kEpochs ? 2 : 1;
  const std::int64_t messages = most_messages_of(shape, rung);
  const std::int64_t returns = static_cast<std::int64_t>(shape.max_tokens) * places_of(shape, rung);
  const std::int64_t wire = rung >= kPackets ? 2 : 1;  // a packet is half data
  const bool flags = rung >= kTokenFlags && rung < kPackets;
  Layout layout{};
  std::int64_t end = 0;
  const auto take = [&end](std::int64_t bytes) {
    const std::int64_t start = end;
    end = (end + bytes + 127) / 128 * 128;
    return start;
  };
  layout.counters = take(4 * 2 * shape.ranks);
  layout.blocks_done = take(4 * 2);
  layout.cells = end;
  layout.counts = take(8 * 2 * shape.ranks);
  layout.done = take(8 * shape.ranks);
  layout.message_flags = take(flags ? 8 * parities * shape.ranks * messages : 0);
  layout.return_flags = take(flags ? 8 * parities * returns * shape.segments : 0);
  layout.cells_end = end;
  layout.message_data = (wire * 8 * head_words_of(shape) + 15) / 16 * 16;
  layout.message_bytes = layout.message_data + wire * 2 * (shape.hidden / shape.segments);
  layout.messages = take(parities * shape.ranks * messages * layout.message_bytes);
  layout.returns = take(parities * returns * wire * 2 * shape.hidden);
  layout.total = end;
  return layout;
}

struct Args {
  WorldView view;
  std::uint32_t slot;
  Shape shape;
  Layout layout;
  std::int64_t workspace;  ///< offset in every heap
  std::int32_t tokens;
  std::uint32_t drop_put;    ///< fault injection: this rank drops its n-th message (from 1) to each rank; 0: none
  const void* x;             ///< bf16 [tokens, hidden]
  const std::int32_t* topk;  ///< [tokens, k], -1: skipped
  const float* weights;      ///< [tokens, k]
  void* out;                 ///< bf16 [tokens, hidden]
};

}  // namespace farwarp::lessons::ladder
