// ag-gemm on Hopper, x in boxes. Comm blocks send this rank's x to all ranks. The other blocks multiply as in gemm, and
// their loaders wait for the rows that they copy.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/arrival.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/multiplier_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/pieces.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/swap_ab_loaders.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using namespace farwarp::ag_gemm;

/// [warp] The loader of a block whose tiles' rows are rows of x (straight). One lane copies into the stages; all lanes
/// wait for peers' x.
template <class Tile, class WaitBarrier>
class Loader {
 public:
  FARWARP_DEVICE Loader(const Args& args, const Tile& tile, const WaitBarrier& wait)
      : args_(args), tile_(tile), wait_(wait) {}

  /// [thread] The copying lane, before it uses the call: copies w of the first work's first `most` steps, and x if it
  /// is this rank's own.
  FARWARP_DEVICE void load_ahead(const Work& work, const Place& place, int most) {
    for (; ahead_ < most && ahead_ < work.steps.count; ++ahead_) {
      load_w(place, work.steps.first + ahead_, ahead_);
      if (place.own) load_x(0, place, work.steps.first + ahead_, ahead_);
    }
  }

  /// [warp] Copies the operands of all works of the block, each step of x after it has arrived. Returns when the last
  /// stage that it filled has been multiplied.
  FARWARP_DEVICE void run(Call& call, Turns turns) {
    ahead_ = shuffle(ahead_, 0);
    int row = -1, arrived_end = 0;  // x has arrived for the tile's rows from `row`, for all steps before `arrived_end`
    for (int number = turns.first; number < args_.grid.works(); number += turns.stride) {
      const Work work = farwarp::tile::work_at(args_.grid, number);
      const Place place = place_of<Tile, false>(args_, work);
      const int end = work.steps.first + work.steps.count;
      if (row != place.x_row) arrived_end = 0;
      row = place.x_row;
      for (int step = work.steps.first; step < end;) {
        if (lane_index() == 0) open(work, place, step);
        if (!place.own && step >= arrived_end)
          arrived_end = await_boxes(call, args_, {place.x_row, place.x_end}, work, step, Tile::kStepDepth);
        const int until = place.own || arrived_end > end ? end : arrived_end;
        if (lane_index() == 0) {
          finish(call, work, place, step);
          for (int next = step + 1; next < until; ++next) {
            open(work, place, next);
            finish(call, work, place, next);
          }
        }
        step = until;
      }
      ahead_ = 0;
    }
    if (lane_index() == 0 && !broken_) wait_(tile_.ring.empty(last_.stage), last_.parity);
  }

 private:
  /// [thread] Waits for the next stage and copies w into it, unless load_ahead() has done so.
  FARWARP_DEVICE void open(const Work& work, const Place& place, int step) {
    if (step - work.steps.first < ahead_) return;
    broken_ = broken_ || !wait_(tile_.ring.empty(at_.stage), at_.parity ^ 1);  // the first turn finds every stage empty
    if (!broken_) load_w(place, step, at_.stage);
  }
  /// [thread] Copies x into the next stage, unless load_ahead() has done so.
  FARWARP_DEVICE void finish(const Call& call, const Work& work, const Place& place, int step) {
    const bool done = place.own && step - work.steps.first < ahead_;
    if (!done && !broken_) load_x(call.epoch, place, step, at_.stage);
    last_ = at_;
    at_.advance();
  }

  FARWARP_DEVICE void load_w(const Place& place, int step, int stage) const {
    const bool last = place.x_row == args_.last.row;
    mbarrier_arrive_expect(tile_.ring.full(stage),
                           last ? Tile::kBBytes + args_.last.rows * kSwizzleRowBytes : Tile::kStageBytes);
    tensor_load(tile_.right(stage), args_.w, place.w_row, step * Tile::kStepDepth, tile_.ring.full(stage));
  }
  FARWARP_DEVICE void load_x(std::uint32_t epoch, const Place& place, int step, int stage) const {
    const bool last = place.x_row == args_.last.row;
    const TensorMap& own = last ? args_.x_last : args_.x;
    const TensorMap* const gathered = last ? args_.gathered_x_last : args_.gathered_x;
    const TensorMap& from = place.own ? own : gathered[args_.parity(epoch)];
    const int row = place.own ? place.x_row - args_.view.rank * args_.shard_rows : place.x_row;
    tensor_load(tile_.left(stage), from, row, step * Tile::kStepDepth, tile_.ring.full(stage));
  }

  const Args& args_;
  const Tile tile_;
  const WaitBarrier& wait_;
  int ahead_ = 0;  ///< steps of the current work for which load_ahead() has started the copies
  // Only the copying lane uses these:
  tile::RingPosition<Tile::kStages> at_, last_;
  bool broken_ = false;  ///< a wait for a stage has expired: nothing more is copied
};

/// [warp] The loader's role. In an aborted call it copies whatever memory holds: the results are not used.
template <class Block, class WaitBarrier>
FARWARP_DEVICE void load_role(const Args& args, const Block& block, const WaitBarrier& wait) {
  using Tile = typename Block::Tile;
  const Turns turns = turns_of(args);
  Loader<Tile, WaitBarrier> loader(args, block.tile(), wait);
  const Work first = farwarp::tile::work_at(args.grid, turns.first);
  const Place place = place_of<Tile, false>(args, first);
  if (lane_index() == 0) loader.load_ahead(first, place, 1);
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  call.live = ballot(!call.live) == 0;
  const bool joined = call.live;
  if (lane_index() == 0) {
    if (joined && args.comm_blocks == 0 && block_index() == 0) claim_call(call);
    // As in gemm: the other copies wait until the multipliers have started. Otherwise the copies delay the fetch of
    // their instructions by microseconds.
    wait(block.multipliers_started(), 0);
    loader.load_ahead(first, place, Tile::kStages);
  }
  warp_sync();
  loader.run(call, turns);
  if (lane_index() == 0 && joined) leave_call(call, 0);
}

/// [block] A block that multiplies.
template <class T, int columns, bool swap_ab>
FARWARP_DEVICE void multiply_block(const Args& args) {
  constexpr int kBoxes = farwarp::tile::wgmma_boxes(columns, farwarp::tile::kAllGatherBoxesOf256);
  const tile::WgmmaBlock<T, columns, kBoxes> block{block_shared()};
  if (thread_index() == 0) block.initialise();
  block_sync();
  if (args.grid.splits > 1) cluster_arrive<Order::relaxed>();
  BlockWaits waits;
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(waits, args.view, barrier, parity);
  };
  const int warpgroup = thread_index() / 128;
  if (warpgroup == 0) {
    lower_registers<56>();
    if constexpr (swap_ab) {
      if (thread_index() == 0) load_w_role(args, block, turns_of(args), wait);
      if (warp_index() == 1) load_x_role(args, block, turns_of(args), wait);
    } else if (warp_index() == 0) {
      load_role(args, block, wait);
    }
    if (thread_index() == 64) {
      tensor_prefetch(args.out);
    }
    if (args.grid.splits > 1) tile::attend_cluster_sum();
  } else {
    raise_registers<224>();
    if (lane_index() == 0) mbarrier_arrive(block.multipliers_started());
    multiplier_role<swap_ab>(args, block, warpgroup - 1, wait);
  }
  report_expired(waits, args.view, args.slot, kSiteStage);
}

template <class T, int columns, bool swap_ab>
FARWARP_DEVICE void ag_gemm_wgmma(const Args& args) {
  if (block_index() < args.comm_blocks) {
    comm_block_boxes(args);
  } else {
    multiply_block<T, columns, swap_ab>(args);
  }
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
