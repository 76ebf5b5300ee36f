// A block of the CDNA main loop: the feed of its operands, and the loop over its tiles.
//
// An operator says where operands lie by `Operands`, a copyable object with
//   void open(const Work&, TileSource<Tile>&)   [block] turns to the operands of a work
//   void need(const Work&, int step)            [block] returns when that step of them may be loaded
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
  int xcds;  ///< dies that blocks are dealt to in turn
  int k;
  /// Dies share out this many works at a time; 0: all. Few keep what is to be early, early.
  int window = 0;

  /// Work number `turn` as the die has it. All of it uniform, which the compiler does not see behind a division.
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

/// The operands of all the block's work, step after step. It runs ahead of the sums; behind the last step it repeats that one.
template <class Tile, class Operands>
class Feed {
 public:
  FARWARP_DEVICE Feed(const BlockWork& share, const Operands& operands)
      : share_(share), operands_(operands), turn_(share.turns.first - share.turns.stride) {}

  /// [block] Turns to the next step, at first to the first one.
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

  /// [thread] Loads the thread's part of a stage of the step.
  FARWARP_DEVICE void load(int stage, Transit<Tile>& transit) const {
    source_.load(step_ * Tile::kStepDepth + stage * Tile::kShape.depth, share_.k, transit);
  }

 private:
  const BlockWork& share_;
  Operands operands_;
  TileSource<Tile> source_;
  Work work_{};
  int turn_;
  int step_ = 0;
  int last_ = 0;  // step of the work
};

/// [block] Multiplies the block's tiles and calls `finish(work, sums)`: for every work, or where K is split in that block which comes
/// last.
template <class Tile, class Operands, class Finish>
FARWARP_DEVICE void multiply_tiles(const Tile& tile, const BlockWork& share, const SplitSpace& space,
                                   const Operands& operands, const Finish& finish) {
  if (share.turns.first >= share.grid.works()) return;
  const Shared<std::uint32_t> last_word(reinterpret_cast<std::uint32_t*>((tile.memory + Tile::kShape.last_word()).raw));
  const auto meet = [] { block_sync(); };
  Feed<Tile, Operands> feed(share, operands);
  MfmaPipeline<Tile> pipeline{tile, {}, {}};
  pipeline.start(feed);
  for (int turn = share.turns.first; turn < share.grid.works(); turn += share.turns.stride) {
    const Work work = share.at(turn);
    float sums[Tile::kSums] = {};
    for (int step = 0; step < work.steps.count; ++step) pipeline.step(feed, sums);
    const SplitPart part{work.tile, work.split, thread_index(), last_word};
    if (share.grid.splits == 1 || sum_splits<Tile::kThreads>(space, part, meet, sums, sums)) finish(work, sums);
  }
}

}  // namespace farwarp::FARWARP_TARGET::tile
