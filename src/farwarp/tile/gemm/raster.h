// The order in which the tiles of a product are computed.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"

namespace farwarp::tile {

struct TileIndex {
  int row;
  int column;
};

/// Tile number `index` of a grid of rows x columns: `group` rows of tiles at a time, each column of the group from top
/// to bottom. Tiles that run at the same time then share few rows of A and few rows of B, so that L2 serves both.
/// Example: 132 tiles at once (an H200) of a grid with 64 columns. With `group` 16 they lie in 16 rows and 9 columns of
/// tiles; taken row by row, in 3 rows and 64 columns.
constexpr TileIndex tile_at(int index, int rows, int columns, int group) {
  const int per_group = group * columns;
  const int first = index / per_group * group;
  const int height = rows - first < group ? rows - first : group;
  const int within = index % per_group;
  return {first + within % height, within / height};
}

/// The last tile that has rows of x, if tiles do not share the rows of x evenly and it is not full. Tiles of padding
/// may follow.
struct LastTile {
  std::int32_t row = -1;  ///< at which it begins; -1: it is full
  std::int32_t rows = 0;
};

/// Some of K's steps.
struct StepRange {
  int first;
  int count;
};

/// What a block does at a time: one split's steps of K of one tile.
struct Work {
  int tile;
  int split;
  TileIndex at;
  StepRange steps;
};

/// A product cut into tiles, and each tile's K cut into splits whose sizes differ by one step at most. grid_of()
/// prepares the divisors.
struct TileGrid {
  std::int32_t rows, columns;  ///< how many tiles
  std::int32_t splits;         ///< parts of K that different blocks sum, at most the steps
  std::int32_t split_steps;    ///< steps of each split
  std::int32_t longer_splits;  ///< the first splits, this many, have one step more
  Divisor by_splits;
  Divisor by_group;                           ///< tiles of a group
  Divisor by_group_rows, by_last_group_rows;  ///< rows of tiles of a group, and of the last group

  constexpr int works() const { return rows * columns * splits; }
};
constexpr TileGrid grid_of(int rows, int columns, int group, int splits, int steps) {
  const int last = rows % group == 0 ? group : rows % group;
  return {
      rows,           columns,      splits, steps / splits, steps % splits, Divisor(splits), Divisor(group * columns),
      Divisor(group), Divisor(last)};
}

/// tile_at(), with the grid's prepared divisors.
constexpr TileIndex tile_of(const TileGrid& grid, int index) {
  const int group = grid.by_group.quotient(index);
  const int within = index - group * grid.by_group.value;
  const int first = group * grid.by_group_rows.value;
  const Divisor& height = grid.rows - first < grid.by_group_rows.value ? grid.by_last_group_rows : grid.by_group_rows;
  const int column = height.quotient(within);
  return {first + within - column * height.value, column};
}

constexpr Work work_at(const TileGrid& grid, int number) {
  const int tile = grid.by_splits.quotient(number);
  const int split = number - tile * grid.splits;
  const int longer = split < grid.longer_splits ? split : grid.longer_splits;
  return {tile,
          split,
          tile_of(grid, tile),
          {split * grid.split_steps + longer, grid.split_steps + (split < grid.longer_splits ? 1 : 0)}};
}

/// Which works a block does: number `first`, and every `stride`-th after it.
struct Turns {
  int first;
  int stride;
};

}  // namespace farwarp::tile
