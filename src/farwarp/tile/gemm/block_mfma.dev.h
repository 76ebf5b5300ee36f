// One block's part of the CDNA main loop: the feed of its operands, and the loop over its tiles.
//
// An operator says where the operands are by `Operands`, a copyable object with
//   void open(const Work&, TileSource<Tile>&)   [block] points the source at the operands of a work
//   void need(const Work&, int step)            [block] returns when that step of the operands may be loaded
#pragma once

#include "farwarp/tile/gemm/mainloop_mfma.dev.h"
#include "farwarp/tile/gemm/split_k.dev.h"
#include "farwarp/tile/gemm/xcd.h"

namespace farwarp::FARWARP_TARGET::tile {

using namespace farwarp::tile;

/// A block's share of a product.
struct BlockWork {
  TileGrid grid;
  Turns turns;
  int xcds;  ///< how many XCDs there are; blocks are assigned to them round robin
  int k;
  /// Each run of so many consecutive works is divided among the XCDs before the next one begins; 0: all works at once.
  /// With a small window, works run in about the order of their numbers.
  int window = 0;

  /// The work of turn `turn`, in an order that gives each XCD consecutive works. All fields are uniform in the warp;
  /// the compiler does not see that after a division.
  FARWARP_DEVICE Work at(int turn) const {
    const int works = grid.works();
    const int first = window > 0 ? turn / window * window : 0;
    const int count = window > 0 && window < works - first ? window : works - first;
    const Work work = work_at(grid, uniform(first + work_on_xcd(turn - first, count, xcds)));
    return {uniform(work.tile),
            uniform(work.split),
            {uniform(work.at.row), uniform(work.at.column)},
            {uniform(work.steps.first), uniform(work.steps.count)}};
  }
};

/// The operands of all the block's works, step after step. The feed runs ahead of the products. After the last step it
/// repeats that step.
template <class Tile, class Operands>
class Feed {
 public:
  FARWARP_DEVICE Feed(const BlockWork& share, const Operands& operands)
      : share_(share), operands_(operands), turn_(share.turns.first - share.turns.stride) {}

  /// [block] Moves to the next step. The first call moves to the first step.
  FARWARP_DEVICE void next() {
    if (step_ == last_ && turn_ + share_.turns.stride < share_.grid.works()) {
      turn_ += share_.turns.stride;
      work_ = share_.at(turn_);
      operands_.open(work_, source_);
      step_ = work_.steps.first;
      last_ = work_.steps.first + work_.steps.count - 1;
    } else {
      step_ = step_ < last_ ? step_ + 1 : last_;
    }
    operands_.need(work_, step_);
  }

  /// [thread] Loads the thread's part of stage `stage` of the current step: a Transit or ColumnFragments.
  template <class Part>
  FARWARP_DEVICE void load(int stage, Part& part) const {
    source_.load(step_ * Tile::kStepDepth + stage * Tile::kShape.depth, share_.k, part);
  }

 private:
  const BlockWork& share_;
  Operands operands_;
  TileSource<Tile> source_;
  Work work_{};
  int turn_;
  int step_ = 0;
  int last_ = 0;  // last step of the current work
};

/// [block] Multiplies the block's tiles. Calls `finish(work, sums)` for every work; if K is split, only in the block
/// that arrives last, with the sums of all splits.
template <class Tile, class Operands, class Finish>
FARWARP_DEVICE void multiply_tiles(const Tile& tile, const BlockWork& share, const SplitSpace& space,
                                   const Operands& operands, const Finish& finish) {
  if (share.turns.first >= share.grid.works()) return;
  const Shared<std::uint32_t> arrived_last(
      reinterpret_cast<std::uint32_t*>((tile.memory + Tile::kShape.arrived_last()).raw));
  const auto sync = [] { block_sync(); };
  Feed<Tile, Operands> feed(share, operands);
  MfmaPipeline<Tile> pipeline{tile, {}, {}, {}};
  pipeline.start(feed);
  for (int turn = share.turns.first; turn < share.grid.works(); turn += share.turns.stride) {
    const Work work = share.at(turn);
    WaveSums<Tile> wave{};
    const TraceStart multiplied = trace_start();
    for (int step = 0; step < work.steps.count; ++step) pipeline.step(feed, wave);
    float sums[Tile::kSums];
    stored_sums(tile, wave, sums);
    trace_warp(multiplied, TraceWork::kMultiply, work.tile);
    const TraceStart stored = trace_start();
    const SplitPart part{work.tile, work.split, thread_index(), arrived_last};
    if (share.grid.splits == 1 || sum_splits<Tile::kThreads>(space, part, sync, sums, sums)) finish(work, sums);
    trace_warp(stored, TraceWork::kStore, work.tile);
  }
}

}  // namespace farwarp::FARWARP_TARGET::tile
