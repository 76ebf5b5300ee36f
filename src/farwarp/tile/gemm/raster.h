// In which order the tiles of a product are computed.
#pragma once

#include <cstdint>

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

/// The K steps of split number `split`: sizes differ by at most one.
struct StepRange {
  int first;
  int count;
};
constexpr StepRange steps_of(int split, int splits, int steps) {
  const int first = static_cast<int>(static_cast<long long>(steps) * split / splits);
  const int end = static_cast<int>(static_cast<long long>(steps) * (split + 1) / splits);
  return {first, end - first};
}

/// A product cut into tiles, and each tile's K into splits.
struct TileGrid {
  std::int32_t rows, columns;  ///< how many tiles
  std::int32_t group;          ///< rows of tiles at a time
  std::int32_t splits;         ///< parts of K that different blocks sum, at most `steps`
  std::int32_t steps;          ///< of K

  constexpr int works() const { return rows * columns * splits; }
};

/// What a block does at a time: a tile, and of K the steps of one split.
struct Work {
  int tile;
  int split;
  TileIndex at;
  StepRange steps;
};
constexpr Work work_at(const TileGrid& grid, int number) {
  const int tile = number / grid.splits;
  const int split = number % grid.splits;
  return {tile, split, tile_at(tile, grid.rows, grid.columns, grid.group), steps_of(split, grid.splits, grid.steps)};
}

/// Which works a block does: number `first`, and each `stride` behind it.
struct Turns {
  int first;
  int stride;
};

}  // namespace farwarp::tile
