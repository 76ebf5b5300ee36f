// Pieces of x: how communicators send them.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/put_box.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/return_x.dev.h"
#include "farwarp/world/device/signal.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

/// [warp] Tells all ranks that get it that a piece of this one has arrived.
FARWARP_DEVICE void tell_arrival(const Args& args, std::uint32_t epoch, PieceIndex piece) {
  const int number = (args.view.rank * args.pieces.row_count + piece.row) * args.pieces.depth_count + piece.depth;
  signal_after_warp([&] {
    for_each_target(args, [&](int rank) {
      store<Order::relaxed>(peer_address<ArrivalCell>(args.view, rank, args.arrived_of(epoch)) + number,
                            tagged(epoch, 0));
    });
  });
}

/// A communicator warp's share of the shard's pieces. Neighbours in order go to different blocks: few pieces are spread over all. Only so
/// many warps send as keep the links busy: pieces on their way share the links, and the more there are, the later comes the first.
class Share {
 public:
  FARWARP_DEVICE explicit Share(const Args& args)
      : args_(args),
        turns_(args.view.size == 1 || warp_index() >= args.senders ? 0 : args.piece_order.turns),
        turn_(warp_index() * args.communicators + block_index()) {
    skip();
  }

  FARWARP_DEVICE bool is_over() const { return turn_ >= turns_; }
  FARWARP_DEVICE PieceIndex piece() const { return piece_; }
  FARWARP_DEVICE void next() {
    turn_ += args_.communicators * args_.senders;
    skip();
  }

 private:
  /// On to a turn that has a piece.
  FARWARP_DEVICE void skip() {
    for (; turn_ < turns_; turn_ += args_.communicators * args_.senders) {
      piece_ = args_.piece_order.at(turn_);
      if (piece_.row < args_.pieces.row_count && piece_.depth < args_.pieces.depth_count) return;
    }
  }

  const Args& args_;
  int turns_;
  int turn_;
  PieceIndex piece_{};
};

FARWARP_DEVICE bool is_dropped(const Args& args, PieceIndex piece) {
  const int number = piece.row * args.pieces.depth_count + piece.depth;
  return args.drop_piece == static_cast<std::uint32_t>(number) + 1;
}

/// [warp] Sends the warp's share, of which the first piece has been started. The next piece is read while flags tell of one.
FARWARP_DEVICE void send_role(Call& call, const Args& args, BoxPut& box, Share& share) {
  while (!share.is_over()) {
    const PieceIndex piece = share.piece();
    const bool dropped = !call.live || is_dropped(args, piece);
    if (dropped) {
      box.drop(call);
    } else if (const bool written = box.put(call, args, piece); ballot(!written) != 0) {
      return;
    }
    share.next();
    if (ballot(!call.live) != 0) return;
    if (!share.is_over()) box.start(args, share.piece());
    if (!dropped) tell_arrival(args, call.epoch, piece);
  }
}

/// [block] A communicator.
FARWARP_DEVICE void communicate(const Args& args) {
  BoxPut box(block_shared());
  Share share(args);
  if (!share.is_over()) box.start(args, share.piece());  // under way while join_call() reads its cells
  Call call = join_call(args.view, args.slot);
  if (!call.live) {
    if (!share.is_over()) box.drop(call);
    return;
  }
  if (block_index() == 0 && thread_index() == 0) claim_call(call);
  call.live =
      ballot(!call.live) == 0;  // who could not claim it says so to its warp alone: the abort says it to the others
  send_role(call, args, box, share);
  if (args.all_x != nullptr) return_role(call, args);
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
