// gemm on CDNA: persistent blocks of eight waves, all of which load, multiply and store.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/tile/gemm/epilogue_mfma.dev.h"
#include "farwarp/tile/gemm/feed_mfma.dev.h"
#include "farwarp/tile/gemm/split.dev.h"
#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::gemm::Args;
using farwarp::tile::Work;

/// What the tiles' feed asks.
template <class T>
struct Product {
  const Args& args;

  FARWARP_DEVICE tile::Operand<T> x() const { return {static_cast<const T*>(args.x), args.x_pitch, args.m}; }
  FARWARP_DEVICE tile::Operand<T> w() const { return {static_cast<const T*>(args.w), args.w_pitch, args.n}; }
  FARWARP_DEVICE int depth() const { return args.k; }
  FARWARP_DEVICE int works() const { return args.grid.works(); }
  FARWARP_DEVICE Work work(int turn) const { return tile::work_in_turn(args.grid, args.xcds, turn); }
};

/// [block] Multiplies and stores the block's tiles.
template <class Tile>
FARWARP_DEVICE void multiply_tiles(const Call& call, const Args& args, const Tile& tile) {
  using T = typename Tile::Element;
  if (block_index() >= args.grid.works()) return;
  const tile::Result<T> out{
      {args.m, args.n, Global<const T>(static_cast<const T*>(args.bias))}, static_cast<T*>(args.y), args.y_pitch};
  const Shared<std::uint32_t> last_word(reinterpret_cast<std::uint32_t*>((tile.memory + Tile::kShape.last_word()).raw));
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.partials),
                               own_address<std::uint32_t>(args.view, args.counters), args.grid.splits, call.epoch};
  const auto meet = [] { block_sync(); };
  const Product<T> product{args};
  tile::Feed<Tile, Product<T>> feed(product);
  tile::MfmaPipeline<Tile> pipeline{tile, {}, {}};
  pipeline.start(feed);
  for (int turn = block_index(); turn < args.grid.works(); turn += num_blocks()) {
    const Work work = product.work(turn);
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
