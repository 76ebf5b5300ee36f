// Every step of every tile occurs exactly once, and tiles are where tile_at() says.
#include "farwarp/tile/gemm/raster.h"

#include <gtest/gtest.h>

#include <vector>

namespace farwarp::tile {
namespace {

TEST(Raster, HasEveryStepOfEveryTileOnce) {
  for (const int rows : {1, 3, 16, 37}) {
    for (const int columns : {1, 2, 11}) {
      for (const int group : {1, 4, 16}) {
        for (const int splits : {1, 2, 3, 4}) {
          constexpr int kSteps = 13;
          const TileGrid grid = grid_of(rows, columns, group, splits, kSteps);
          std::vector<int> seen(static_cast<std::size_t>(rows * columns * kSteps));
          for (int number = 0; number < grid.works(); ++number) {
            const Work work = work_at(grid, number);
            const TileIndex at = tile_at(work.tile, rows, columns, group);
            ASSERT_EQ(work.at.row, at.row);
            ASSERT_EQ(work.at.column, at.column);
            ASSERT_EQ(work.tile * splits + work.split, number);
            ASSERT_GE(work.steps.count, kSteps / splits);
            ASSERT_LE(work.steps.count, (kSteps + splits - 1) / splits);
            for (int i = 0; i < work.steps.count; ++i)
              ++seen[static_cast<std::size_t>((at.row * columns + at.column) * kSteps + work.steps.first + i)];
          }
          for (const int times : seen) ASSERT_EQ(times, 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace farwarp::tile
