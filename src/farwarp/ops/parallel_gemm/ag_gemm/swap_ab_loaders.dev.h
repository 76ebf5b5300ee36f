// The loaders of few rows: one warp's thread copies w, another warp copies x once it has come. Both fill the stages of one ring, each at
// its own pace, and a stage's barrier counts the bytes of both: no wait for x stands in front of w.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/arrival.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// [thread] Copies w, as gemm does. It was there before the call, and nothing of the call is read.
template <class Block, class Wait>
FARWARP_DEVICE void load_w_role(const Args& args, const Block& block, Turns turns, const Wait& wait) {
  using Tile = typename Block::Tile;
  const Tile tile = block.tile();
  const auto load = [&](const Work& work, int step, int stage) {
    mbarrier_arrive_expect(tile.ring.full(stage), Tile::kStageBytes);
    tensor_load(tile.left(stage), args.w, work.at.row * Tile::kRows, (work.steps.first + step) * Tile::kStepDepth,
                tile.ring.full(stage));
  };
  const int loaded = tile::load_first<Tile, 1>(args.grid, turns, load);
  // As in gemm: behind the copies of all stages of all blocks, the multipliers' instructions would come microseconds later.
  wait(block.multipliers_started(), 0);
  tile::load_role(tile, args.grid, turns, loaded, load, wait);
}

/// [warp] Copies x; keeps the call for its block. In an aborted call it copies whatever is there: what comes out counts for nothing.
template <class Block, class Wait>
FARWARP_DEVICE void load_x_role(const Args& args, const Block& block, Turns turns, const Wait& wait) {
  using Tile = typename Block::Tile;
  const Tile tile = block.tile();
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  call.live = ballot(!call.live) == 0;
  const bool joined = call.live;
  if (lane_index() == 0 && joined && args.comm_blocks == 0 && block_index() == 0) claim_call(call);
  const bool own = args.own_apart != 0;
  const TensorMap& from = own ? args.x : args.gathered_x[args.parity(call.epoch)];
  tile::RingPosition<Tile::kStages> at, last;
  bool broken = false;  // a stage has not come free: nothing more is copied
  int arrived_end = 0;  // x of all steps before has; with K in splits, a block has one work
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
