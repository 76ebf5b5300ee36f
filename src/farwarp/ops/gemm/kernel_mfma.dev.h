// gemm on CDNA: persistent blocks of eight waves, all of which load, multiply and store.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/tile/gemm/block_mfma.dev.h"
#include "farwarp/tile/gemm/epilogue_mfma.dev.h"
#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using namespace farwarp::gemm;

using farwarp::tile::Work;

template <class Tile>
struct Operands {
  using T = typename Tile::Element;
  const Args& args;

  FARWARP_DEVICE void open(const Work& work, tile::TileSource<Tile>& source) const {
    source.open({static_cast<const T*>(args.x), args.x_pitch, args.m},
                {static_cast<const T*>(args.w), args.w_pitch, args.n}, work.at.row * Tile::kRows,
                work.at.column * Tile::kColumns);
  }
  FARWARP_DEVICE void need(const Work&, int) const {}
};

template <class T, tile::MfmaShape shape>
FARWARP_DEVICE void gemm_mfma(const Args& args) {
  const Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  using Tile = tile::MfmaTile<T, shape>;
  const tile::Result<T> out{
      {args.m, args.n, Global<const T>(static_cast<const T*>(args.bias))}, static_cast<T*>(args.y), args.y_pitch};
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.partials),
                               own_address<std::uint32_t>(args.view, args.counters), args.grid.splits, call.epoch};
  const tile::BlockWork share{args.grid, {block_index(), num_blocks()}, args.xcds, args.k};
  tile::multiply_tiles(Tile{block_shared()}, share, space, Operands<Tile>{args},
                       [&](const Work& work, const float(&sums)[Tile::kSums]) {
                         tile::store_sums<Tile>(out, work.at.row * Tile::kRows, work.at.column * Tile::kColumns, sums);
                       });
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::gemm
