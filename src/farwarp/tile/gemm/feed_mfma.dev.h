// What the CDNA main loop is fed with: a block's work, and its operands step after step.
#pragma once

#include "farwarp/tile/gemm/mainloop_mfma.dev.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/tile/gemm/xcd.h"

namespace farwarp::FARWARP_TARGET::tile {

using farwarp::tile::TileGrid;
using farwarp::tile::Work;

/// The block's work in turn `turn`: block_index() + any number of num_blocks(). All of it uniform, which the compiler does not see
/// behind a division.
FARWARP_DEVICE Work work_in_turn(const TileGrid& grid, int xcds, int turn) {
  const Work work = farwarp::tile::work_at(grid, uniform(farwarp::tile::work_on_xcd(turn, grid.works(), xcds)));
  return {uniform(work.tile),
          uniform(work.split),
          {uniform(work.at.row), uniform(work.at.column)},
          {uniform(work.steps.first), uniform(work.steps.count)}};
}

/// The operands of all the block's work, step after step. It runs ahead of the sums; behind the last step it repeats that one. A
/// `Product` says what is multiplied: x(), w(), depth(), works(), and work(turn).
template <class Tile, class Product>
class Feed {
 public:
  FARWARP_DEVICE explicit Feed(const Product& product)
      : product_(product), turn_(block_index() - num_blocks()) {}

  /// [thread] Turns to the next step, at first to the first one.
  FARWARP_DEVICE void next() {
    if (step_ == last_ && turn_ + num_blocks() < product_.works()) {
      turn_ += num_blocks();
      open();
    } else {
      step_ = step_ < last_ ? step_ + 1 : last_;
    }
  }

  /// [thread] Loads the thread's part of a stage of the step.
  FARWARP_DEVICE void load(int stage, Transit<Tile>& transit) const {
    source_.load(step_ * Tile::kStepDepth + stage * Tile::kShape.depth, product_.depth(), transit);
  }

 private:
  FARWARP_DEVICE void open() {
    const Work work = product_.work(turn_);
    source_.open(product_.x(), product_.w(), work.at.row * Tile::kRows, work.at.column * Tile::kColumns);
    step_ = work.steps.first;
    last_ = work.steps.first + work.steps.count - 1;
  }

  const Product& product_;
  TileSource<Tile> source_;
  int turn_;
  int step_ = 0;
  int last_ = 0;  // step of the work
};

}  // namespace farwarp::FARWARP_TARGET::tile
