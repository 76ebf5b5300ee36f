// Sends this rank's x to the peers as words (world/device/words.dev.h): plain stores of 16 bytes, each its own flag.
// Also clears inboxes for later calls.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using namespace farwarp::ag_gemm;

/// A lane's 16 bytes of each piece that its warp sends at a time. A piece is kWordsDepth elements of one row.
struct OwnWords {
  static constexpr int kPieces = 4;
  Vec16 words[kPieces];
  int at[kPieces];  ///< offset in this rank's x, in bytes; -1: nothing to send
};

/// The pieces of this rank's x that one warp of a comm block sends, in the order in which tiles consume them
/// (PieceOrder). Consecutive pieces go to different blocks.
class WordsToSend {
 public:
  FARWARP_DEVICE explicit WordsToSend(const Args& args)
      : args_(args),
        positions_(args.piece_order.positions),
        stride_(args.comm_blocks * (num_threads() / Target::kWarpSize)),
        position_(warp_index() * args.comm_blocks + block_index()) {}

  FARWARP_DEVICE bool is_done() const { return position_ >= positions_; }

  /// [thread] Starts reading the next pieces.
  FARWARP_DEVICE OwnWords read() {
    OwnWords own;
#pragma unroll
    for (int i = 0; i < OwnWords::kPieces; ++i) {
      own.at[i] = offset_of(position_);
      own.words[i] = {};
      if (own.at[i] >= 0) {
        const auto* const x = static_cast<const std::byte*>(args_.own_x) + own.at[i];
        own.words[i] = load(Global<const Vec16>(reinterpret_cast<const Vec16*>(x)));
      }
      position_ += stride_;
    }
    return own;
  }

 private:
  FARWARP_DEVICE int offset_of(int position) const {
    const bool dropped = args_.drop_put == static_cast<std::uint32_t>(position) + 1;
    if (position >= positions_ || dropped) return -1;
    const auto piece = args_.piece_order.at(position);
    const int column = piece.depth * kWordsDepth + lane_index() * 8;
    if (piece.row >= args_.pieces.row_count || column >= args_.k) return -1;
    return (piece.row * args_.k + column) * 2;
  }

  const Args& args_;
  int positions_;
  int stride_;
  int position_;
};

/// [thread] Stores the words into the inbox of every peer, beginning with the rank after this one, so that not all
/// ranks send to the same peer first. Stores them into the own inbox too if own rows are not read from x itself
/// (Args::own_read_directly).
FARWARP_DEVICE void send_words(const Call& call, const Args& args, const OwnWords& own) {
  const WorldView& view = args.view;
  const std::int64_t shard = args.inbox_of(call.epoch) + std::int64_t{2} * view.rank * args.shard_rows * args.k;
#pragma unroll
  for (int i = 0; i < OwnWords::kPieces; ++i) {
    if (own.at[i] < 0) continue;
    const Vec16 words = sendable(own.words[i]);
    for (int hop = 1; hop < view.size + (args.own_read_directly == 0 ? 1 : 0); ++hop) {
      const int peer = view.rank + hop < view.size ? view.rank + hop : view.rank + hop - view.size;
      store_words(peer_address<Vec16>(view, peer, shard + own.at[i]), words);
    }
  }
}

/// [block] A comm block: sends its share of x. It waits for nothing.
FARWARP_DEVICE void comm_block_words(const Args& args) {
  WordsToSend to_send(args);
  OwnWords next = to_send.read();  // in flight while join_call() reads its cells
  Call call = join_call(args.view, args.slot);
  if (!call.live) return;
  for (bool more = true; more;) {
    const OwnWords own = next;
    more = !to_send.is_done();
    if (more) next = to_send.read();
    send_words(call, args, own);
  }
  if (block_index() == 0 && thread_index() == 0) claim_call(call);
  end_call(call, 0);
}

/// [warp] Clears part `number` of `warps` of the previous call's inbox. Its readers ended with that call's kernel.
/// Peers write it again in call epoch + 3. They begin that call after they have all of this rank's x of call epoch + 2,
/// which this rank sends after this kernel.
FARWARP_DEVICE void clear_inbox(const Args& args, std::uint32_t epoch, int number, int warps) {
  const auto inbox = own_address<Vec16>(args.view, args.inbox_of(epoch - 1));
  const int count = static_cast<int>(std::int64_t{args.m} * args.k / 8);
#pragma unroll 4
  for (int i = number * Target::kWarpSize + lane_index(); i < count; i += warps * Target::kWarpSize)
    clear_words(inbox + i);
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
