// How the product is cut into what blocks do one after another.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/substrate/device.h"
#include "farwarp/tile/gemm/raster.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::gemm::Args;

/// One block's share of the product: a tile, and of K the steps of one split.
struct Work {
  int tile;
  int split;
  int row;     ///< first row of A
  int column;  ///< first row of B
  farwarp::tile::StepRange steps;
};

template <class Tile>
FARWARP_DEVICE Work work_at(const Args& args, int number) {
  Work work{};
  work.tile = number / args.splits;
  work.split = number % args.splits;
  const auto at = farwarp::tile::tile_at(work.tile, args.tile_rows, args.tile_columns, args.group);
  work.row = at.row * Tile::kRows;
  work.column = at.column * Tile::kColumns;
  const int steps = (args.k + Tile::kStepDepth - 1) / Tile::kStepDepth;
  work.steps = farwarp::tile::steps_of(work.split, args.splits, steps);
  return work;
}

FARWARP_DEVICE int work_count(const Args& args) { return args.tile_rows * args.tile_columns * args.splits; }

}  // namespace farwarp::FARWARP_TARGET::gemm
