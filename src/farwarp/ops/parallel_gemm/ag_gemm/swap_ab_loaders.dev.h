// The loaders for few rows (swap_ab). A thread of one warp copies w. Another warp waits for x and copies it. Both fill
// the same ring, each at its own pace, so w never waits for x. A stage's barrier counts the bytes of both.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/arrival.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// [thread] Copies w, as gemm does. w was written before the call, so this reads none of the call's cells.
template <class Block, class WaitBarrier>
FARWARP_DEVICE void load_w_role(const Args& args, const Block& block, Turns turns, const WaitBarrier& wait) {
  using Tile = typename Block::Tile;
  const Tile tile = block.tile();
  const auto load = [&](const Work& work, int step, int stage) {
    mbarrier_arrive_expect(tile.ring.full(stage), Tile::kStageBytes);
    tensor_load(tile.left(stage), args.w, work.at.row * Tile::kRows, (work.steps.first + step) * Tile::kStepDepth,
                tile.ring.full(stage));
  };
  const int loaded = tile::load_first<Tile, 1>(args.grid, turns, load);
  // As in gemm: the other copies wait until the multipliers have started. Otherwise the copies delay the fetch of their
  // instructions by microseconds.
  wait(block.multipliers_started(), 0);
  tile::load_role(tile, args.grid, turns, loaded, load, wait);
}

/// [warp] Copies x. Reads and leaves the call for the block. In an aborted call it copies whatever memory holds: the
/// results are not used.
template <class Block, class WaitBarrier>
FARWARP_DEVICE void load_x_role(const Args& args, const Block& block, Turns turns, const WaitBarrier& wait) {
  using Tile = typename Block::Tile;
  const Tile tile = block.tile();
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  call.live = ballot(!call.live) == 0;
  const bool joined = call.live;
  if (lane_index() == 0 && joined && args.comm_blocks == 0 && block_index() == 0) claim_call(call);
  const bool own = args.own_read_directly != 0;
  const TensorMap& from = own ? args.x : args.gathered_x[args.parity(call.epoch)];
  tile::RingPosition<Tile::kStages> at, last;
  bool broken = false;  // a wait for a stage has expired: nothing more is copied
  int arrived_end =
      0;  // x of all steps before this one has arrived. Kept across works: with K in splits, a block has one work
  for (int number = turns.first; number < args.grid.works(); number += turns.stride) {
    const Work work = farwarp::tile::work_at(args.grid, number);
    const int end = work.steps.first + work.steps.count;
    for (int step = work.steps.first; step < end;) {
      if (!own && step >= arrived_end) arrived_end = await_boxes(call, args, {0, args.m}, work, step, Tile::kStepDepth);
      const int until = own || arrived_end > end ? end : arrived_end;
      for (; step < until; ++step) {
        if (lane_index() == 0) {
          broken = broken || !wait(tile.ring.empty(at.stage), at.parity ^ 1);  // the first turn finds every stage empty
          if (!broken)
            tensor_load(tile.right(at.stage), from, work.at.column * Tile::kColumns, step * Tile::kStepDepth,
                        tile.ring.full(at.stage));
        }
        last = at;
        at.advance();
      }
    }
  }
  if (lane_index() != 0) return;
  if (!broken) wait(tile.ring.empty(last.stage), last.parity);
  if (joined) leave_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
