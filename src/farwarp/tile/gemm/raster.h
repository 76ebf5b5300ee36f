// In which order the tiles of a product are computed.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"

namespace farwarp::tile {

struct TileIndex {
  int row;
  int column;
};

/// Tile number `index` of a grid of rows x columns: `group` rows of tiles at a time, each column of the group from top to bottom.
/// Tiles that run at one time thus share few rows of A and few rows of B, and L2 serves both: on an H200 132 tiles in groups of
/// 8 read 8 + 17 strips where row by row they would read 3 + 64.
constexpr TileIndex tile_at(int index, int rows, int columns, int group) {
  const int per_group = group * columns;
  const int first = index / per_group * group;
  const int height = rows - first < group ? rows - first : group;
  const int within = index % per_group;
  return {first + within % height, within / height};
}

/// Some of K's steps.
struct StepRange {
  int first;
  int count;
};

/// What a block does at a time: a tile, and of K the steps of one split.
struct Work {
  int tile;
  int split;
  TileIndex at;
  StepRange steps;
};

/// A product cut into tiles, and each tile's K into splits, whose sizes differ by one step at most. What it is divided by is known
/// beforehand: grid_of().
struct TileGrid {
  std::int32_t rows, columns;  ///< how many tiles
  std::int32_t splits;         ///< parts of K that different blocks sum, at most the steps
  std::int32_t split_steps;    ///< of each split,
  std::int32_t longer_splits;  ///< and one more of that many, the first ones
  Divisor by_splits;
  Divisor by_group;                   ///< tiles of `height` rows of tiles
  Divisor by_height, by_last_height;  ///< rows of tiles that run together, and those left for the last group

  constexpr int works() const { return rows * columns * splits; }
};
constexpr TileGrid grid_of(int rows, int columns, int group, int splits, int steps) {
  const int last = rows % group == 0 ? group : rows % group;
  return {
      rows,           columns,      splits, steps / splits, steps % splits, Divisor(splits), Divisor(group * columns),
      Divisor(group), Divisor(last)};
}

/// As tile_at().
constexpr TileIndex tile_of(const TileGrid& grid, int index) {
  const int group = grid.by_group.quotient(index);
  const int within = index - group * grid.by_group.value;
  const int first = group * grid.by_height.value;
  const Divisor& height = grid.rows - first < grid.by_height.value ? grid.by_last_height : grid.by_height;
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

/// Which works a block does: number `first`, and each `stride` behind it.
struct Turns {
  int first;
  int stride;
};

}  // namespace farwarp::tile
