// The works of a multiplying block of ag-gemm, and the role of its multipliers.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using namespace farwarp::ag_gemm;

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// The works that the block multiplies.
FARWARP_DEVICE Turns turns_of(const Args& args) {
  return {block_index() - args.comm_blocks, num_blocks() - args.comm_blocks};
}

/// A work's place in the operands.
struct Place {
  int x_row, x_end;  ///< rows of all ranks' x
  int w_row;
  bool own;  ///< all its rows of x are this rank's, and are read from x itself
};

/// With `swap_ab` a tile's rows are rows of w.
template <class Tile, bool swap_ab>
FARWARP_DEVICE Place place_of(const Args& args, const Work& work) {
  const int x_rows = swap_ab ? Tile::kColumns : Tile::kRows;
  const int row = swap_ab ? work.at.column * Tile::kColumns : args.order.at(work.at.row) * Tile::kRows;
  const int end = row + x_rows < args.m ? row + x_rows : args.m;
  const int own_row = args.view.rank * args.shard_rows;
  const bool own = args.own_read_directly != 0 && row >= own_row && end <= own_row + args.shard_rows;
  return {row, end, swap_ab ? work.at.row * Tile::kRows : work.at.column * Tile::kColumns, own};
}

/// [warpgroup] The role of a multiplier.
template <bool swap_ab, class Block, class WaitBarrier>
FARWARP_DEVICE void multiplier_role(const Args& args, const Block& block, int multiplier, const WaitBarrier& wait) {
  const auto origin = [&](const Work& work) {
    const Place place = place_of<typename Block::Tile, swap_ab>(args, work);
    return swap_ab ? farwarp::tile::TileIndex{place.w_row, place.x_row}
                   : farwarp::tile::TileIndex{place.x_row, place.w_row};
  };
  using Tile = typename Block::Tile;
  const auto map_of = [&](int) -> const TensorMap& { return args.out; };
  tile::multiply_and_store<swap_ab, false>(args, block, multiplier, turns_of(args),
                                           swap_ab ? Tile::kColumns : Tile::kRows, origin, map_of,
                                           tile::unscaled_steps(block.tile(), multiplier, wait));
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
