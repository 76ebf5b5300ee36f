// gemm on CDNA: persistent blocks of eight waves, all of which load, multiply and store.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/tile/gemm/epilogue_mfma.dev.h"
#include "farwarp/tile/gemm/mainloop_mfma.dev.h"
#include "farwarp/tile/gemm/split.dev.h"
#include "farwarp/tile/gemm/xcd.h"
#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::gemm::Args;
using farwarp::tile::Work;

/// The block's work in turn `turn`: block_index() + any number of num_blocks(). All of it uniform, which the compiler does not see
/// behind a division.
FARWARP_DEVICE Work work_in_turn(const Args& args, int turn) {
  const Work work =
      farwarp::tile::work_at(args.grid, uniform(farwarp::tile::work_on_xcd(turn, args.grid.works(), args.xcds)));
  return {uniform(work.tile),
          uniform(work.split),
          {uniform(work.at.row), uniform(work.at.column)},
          {uniform(work.steps.first), uniform(work.steps.count)}};
}

/// The operands of all the block's work, step after step. It runs ahead of the sums; behind the last step it repeats that one.
template <class Tile>
class Feed {
 public:
  using T = typename Tile::Element;

  FARWARP_DEVICE explicit Feed(const Args& args) : args_(args), turn_(block_index() - num_blocks()) {}

  /// [thread] Turns to the next step, at first to the first one.
  FARWARP_DEVICE void next() {
    if (step_ == last_ && turn_ + num_blocks() < args_.grid.works()) {
      turn_ += num_blocks();
      open();
    } else {
      step_ = step_ < last_ ? step_ + 1 : last_;
    }
  }

  /// [thread] Loads the thread's part of a stage of the step.
  FARWARP_DEVICE void load(int stage, tile::Transit<Tile>& transit) const {
    source_.load(step_ * Tile::kStepDepth + stage * Tile::kShape.depth, args_.k, transit);
  }

 private:
  FARWARP_DEVICE void open() {
    const Work work = work_in_turn(args_, turn_);
    source_.open({static_cast<const T*>(args_.x), args_.x_pitch, args_.m},
                 {static_cast<const T*>(args_.w), args_.w_pitch, args_.n}, work.at.row * Tile::kRows,
                 work.at.column * Tile::kColumns);
    step_ = work.steps.first;
    last_ = work.steps.first + work.steps.count - 1;
  }

  const Args& args_;
  tile::TileSource<Tile> source_;
  int turn_;
  int step_ = 0;
  int last_ = 0;  // step of the work
};

/// [block] Multiplies and stores the block's tiles.
template <class Tile>
FARWARP_DEVICE void multiply_tiles(const Call& call, const Args& args, const Tile& tile) {
  using T = typename Tile::Element;
  if (block_index() >= args.grid.works()) return;
  const tile::Result<T> out{static_cast<T*>(args.y), args.y_pitch, args.m, args.n,
                            Global<const T>(static_cast<const T*>(args.bias))};
  const Shared<std::uint32_t> last_word(reinterpret_cast<std::uint32_t*>((tile.memory + Tile::kShape.last_word()).raw));
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.partials),
                               own_address<std::uint32_t>(args.view, args.counters), args.grid.splits, call.epoch};
  const auto meet = [] { block_sync(); };
  Feed<Tile> feed(args);
  tile::MfmaPipeline<Tile> pipeline{tile, {}, {}};
  pipeline.start(feed);
  for (int turn = block_index(); turn < args.grid.works(); turn += num_blocks()) {
    const Work work = work_in_turn(args, turn);
    float sums[Tile::kSums] = {};
    for (int step = 0; step < work.steps.count; ++step) pipeline.step(feed, sums);
    const tile::SplitPart part{work.tile, work.split, thread_index(), last_word};
    if (args.grid.splits == 1 || tile::sum_splits<Tile::kThreads>(space, part, meet, sums, sums)) {
      tile::store_sums<Tile>(out, work.at.row * Tile::kRows, work.at.column * Tile::kColumns, sums);
    }
  }
}

template <class T, tile::MfmaShape shape>
FARWARP_DEVICE void gemm_mfma(const Args& args) {
  const Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  multiply_tiles(call, args, tile::MfmaTile<T, shape>{block_shared()});
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::gemm
