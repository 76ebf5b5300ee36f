// Pieces of x: how communicators send them, and how blocks that multiply wait for them.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/put_box.dev.h"
#include "farwarp/world/device/entry.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using ArrivalCell = SystemCell<std::uint64_t>;

/// [warp] Waits until all peers have entered the call: what they gathered in the one before may be overwritten from now on.
FARWARP_DEVICE bool await_entries(Call& call, const Args& args) {
  const int peer = lane_index();
  if (peer < args.view.size) {
    wait_entry<Failure::in_place>(call, args.entries, peer, farwarp::ag_gemm::kSiteEntry);
  }
  warp_sync();
  call.live = ballot(!call.live) == 0;
  return call.live;
}

/// [warp] Tells all ranks that get it that a piece of this one has arrived.
FARWARP_DEVICE void tell_arrival(const Args& args, std::uint32_t epoch, PieceIndex piece) {
  const int number = (args.view.rank * args.pieces.row_count + piece.row) * args.pieces.depth_count + piece.depth;
  signal_after_warp([&] {
    for_each_target(args, [&](int rank) {
      store<Order::relaxed>(peer_address<ArrivalCell>(args.view, rank, args.arrived) + number, tagged(epoch, 0));
    });
  });
}

/// [block] A communicator's work: its share of the shard's pieces.
FARWARP_DEVICE void send_role(Call& call, const Args& args, BoxPut& box) {
  const int warps = num_threads() / Target::kWarpSize;
  const int turns = farwarp::ag_gemm::piece_turns(args.pieces, args.piece_band, args.grid.splits);
  bool entered = false;
  for (int turn = block_index() * warps + warp_index(); turn < turns; turn += args.communicators * warps) {
    const PieceIndex piece = farwarp::ag_gemm::piece_in_turn(turn, args.pieces, args.piece_band, args.grid.splits);
    if (piece.row >= args.pieces.row_count || piece.depth >= args.pieces.depth_count) continue;
    if (!entered && !await_entries(call, args)) return;
    entered = true;
    if (args.drop_piece == static_cast<std::uint32_t>(turn) + 1) continue;
    const bool written = box.put(call, args, piece);
    if (ballot(!written) != 0) return;
    tell_arrival(args, call.epoch, piece);
  }
}

/// [block] A communicator.
FARWARP_DEVICE void communicate(const Args& args) {
  BoxPut box(block_shared());
  Call call = join_call(args.view, args.slot);  // its barrier shows the box's mbarriers to copies
  if (!call.live) return;
  if (block_index() == 0 && warp_index() == 0) {
    announce_entry(call, args.entries);
    if (lane_index() == 0) claim_call(call);
  }
  send_role(call, args, box);
  end_call(call, 0);
}

/// [warp] Waits until rows [row, end) of all ranks' x have come in piece number `depth` of K, for copies and for accesses. A wait that
/// gives up is passed over: what comes out of an aborted call counts for nothing.
FARWARP_DEVICE void await_rows(Call& call, const Args& args, int row, int end, int depth) {
  const auto piece_of = [&](int at) {
    return at / args.shard_rows * args.pieces.row_count + at % args.shard_rows / args.pieces.rows;
  };
  const Global<ArrivalCell> cells = own_address<ArrivalCell>(args.view, args.arrived) + depth;
  const int last = piece_of((end < args.m ? end : args.m) - 1);
  for (int piece = piece_of(row) + lane_index(); piece <= last; piece += Target::kWarpSize) {
    std::uint32_t value = 0;
    // Behind the peer's own waits for entries: the rank that is really missing is the one to be on record.
    const Wait wait{farwarp::ag_gemm::kSiteArrival, piece / args.pieces.row_count, 1};
    wait_tagged<Failure::in_place>(call, cells + piece * args.pieces.depth_count, call.epoch, value, wait);
    if constexpr (Target::kHasBulkCopy) proxy_fence();
  }
  warp_sync();
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
