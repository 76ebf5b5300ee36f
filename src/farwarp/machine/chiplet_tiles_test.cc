#include "farwarp/machine/chiplet_tiles.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace farwarp {
namespace {

TEST(ChipletTiles, EveryTileHasItsNumber) {
  for (const int window : {1, 2, 3, 4, 7}) {
    for (const int m_tiles : {1, 2, 4, 5}) {
      const ChipletTiles tiles{m_tiles, 6, window};
      std::set<std::pair<int, int>> seen;
      for (int number = 0; number < m_tiles * 6; ++number) {
        const ChipletTiles::Tile tile = tiles.at(number);
        ASSERT_TRUE(tile.m >= 0 && tile.m < m_tiles && tile.n >= 0 && tile.n < 6);
        seen.insert({tile.m, tile.n});
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(m_tiles) * 6);
    }
  }
}

TEST(ChipletTiles, NeighboursReadTheSameWeights) {
  const ChipletTiles tiles{4, 6, 4};
  for (int number = 0; number < 24; ++number) EXPECT_EQ(tiles.at(number).n, number / 4);
  const ChipletTiles n_fastest{4, 6, 1};
  for (int number = 0; number < 24; ++number) EXPECT_EQ(n_fastest.at(number).n, number % 6);
}

/// Of the reads of a layer's four products of Qwen3-8B, in percent.
double hit_rate(int batch, int window, bool reads_x) {
  const CacheMachine machine = *find_cache_machine("mi350x");
  double hits = 0, all = 0;
  for (const auto& [rows, columns] : {std::pair{6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}}) {
    const ChipletProduct product(
        {.rows = rows, .columns = columns, .batch = batch, .window = window, .reads_x = reads_x});
    const auto result = simulate_caches(machine, product);
    EXPECT_TRUE(result.ok()) << result.status().message();
    hits += result->l2_hit_rate * result->l2_bytes;
    all += result->l2_bytes;
  }
  return 100 * hits / all;
}

TEST(ChipletTiles, AWindowOfAllTilesOfXReadsWeightsOnce) {
  constexpr int kAll = 8;
  EXPECT_NEAR(hit_rate(16, kAll, false), 0, 0.1) << "one tile of x: nobody shares weights";
  EXPECT_NEAR(hit_rate(32, kAll, false), 50, 1.5) << "1 - 1 / tiles of x";
  EXPECT_NEAR(hit_rate(64, kAll, false), 75, 1.5);
  EXPECT_LT(hit_rate(32, 1, false), 30) << "w fastest: only what is still in the L2";
}

/// README.md has these beside the published ones.
TEST(ChipletTiles, RatesWithReadsOfX) {
  EXPECT_NEAR(hit_rate(32, 8, true), 57.4, 0.5);
  EXPECT_NEAR(hit_rate(64, 8, true), 77.1, 0.5);
}

}  // namespace
}  // namespace farwarp
