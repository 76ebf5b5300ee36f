#include "farwarp/ops/attention/accesses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace farwarp::attention {
namespace {

std::vector<TileAccess> all_accesses(const PrefillAccesses& plan, std::int64_t workgroup) {
  std::vector<TileAccess> accesses(plan.accesses(workgroup));
  plan.read(workgroup, 0, accesses);
  return accesses;
}

TEST(KvTiles, AreThoseThatTheRowsAttendTo) {
  for (const bool causal : {false, true}) {
    for (const int window : {0, 1, 5, 40}) {
      if (window > 0 && !causal) continue;
      for (const int seq_q : {1, 7, 16, 33}) {
        for (const int seq_k : {1, 9, 32, 50}) {
          PrefillShape shape;
          shape.seq_q = seq_q;
          shape.seq_k = seq_k;
          shape.block_m = 8;
          shape.block_n = 4;
          shape.causal = causal;
          shape.window = window;
          ASSERT_TRUE(check(shape).ok());
          for (int block = 0; block < query_blocks(shape); ++block) {
            std::set<int> expected;
            for (int row = block * 8; row < std::min(seq_q, block * 8 + 8); ++row) {
              for (int column = 0; column < seq_k; ++column) {
                const int at = row + seq_k - seq_q;
                if (causal && (column > at || (window > 0 && column <= at - window))) continue;
                expected.insert(column / 4);
              }
            }
            const TileRange range = kv_tiles(shape, block);
            ASSERT_EQ(range.count, static_cast<int>(expected.size())) << seq_q << " " << seq_k << " " << window;
            if (range.count > 0) {
              ASSERT_EQ(range.first, *expected.begin());
            }
          }
        }
      }
    }
  }
}

TEST(PrefillAccesses, AWorkReadsItsQAndItsHeadsKAndVAndWritesItsO) {
  PrefillShape shape;
  shape.batch = 2;
  shape.heads = 6;
  shape.kv_heads = 3;
  shape.seq_q = 300;
  shape.seq_k = 200;
  for (const Mapping mapping : kMappings) {
    const PrefillAccesses plan(shape, mapping, false, 8);
    const WorkGrid grid = work_grid(mapping, false, 2, 6, 3, 8);
    ASSERT_EQ(plan.workgroups(), 36);
    for (std::int64_t work = 0; work < plan.workgroups(); ++work) {
      const WorkPlace place = place_of(grid, static_cast<int>(work));
      const std::vector<TileAccess> accesses = all_accesses(plan, work);
      ASSERT_EQ(accesses.size(), 2u + 2 * 4);
      const int rows = place.query_block == 2 ? 44 : 128;
      const std::uint32_t kv = 2 * (place.batch * 3 + place.head / 2);
      const std::uint32_t q = 12 + 2 * (place.batch * 6 + place.head);
      EXPECT_EQ(accesses.front().object, q);
      EXPECT_EQ(accesses.front().bytes, rows * 256);
      EXPECT_EQ(accesses.back().object, q + 1);
      EXPECT_TRUE(accesses.back().write);
      EXPECT_EQ(accesses.back().tile, static_cast<std::uint32_t>(place.query_block));
      for (int tile = 0; tile < 4; ++tile) {
        for (int v = 0; v < 2; ++v) {
          const TileAccess& access = accesses[1 + 2 * tile + v];
          EXPECT_EQ(access.object, kv + v);
          EXPECT_EQ(access.tile, static_cast<std::uint32_t>(tile));
          EXPECT_EQ(access.bytes, (tile == 3 ? 8 : 64) * 256);
          EXPECT_EQ(access.flops, 2.0 * 128 * (tile == 3 ? 8 : 64) * 128);
          EXPECT_FALSE(access.write);
        }
      }
    }
  }
}

TEST(PrefillAccesses, CanBeReadFromAnyNumberOn) {
  PrefillShape shape;
  shape.seq_q = shape.seq_k = 1000;
  const PrefillAccesses plan(shape, Mapping::kHeadFirst, false, 1);
  const std::vector<TileAccess> all = all_accesses(plan, 3);
  for (std::size_t first = 0; first < all.size(); ++first) {
    TileAccess access;
    plan.read(3, static_cast<std::int64_t>(first), std::span(&access, 1));
    EXPECT_EQ(access.object, all[first].object);
    EXPECT_EQ(access.tile, all[first].tile);
  }
}

CacheResult simulated(const PrefillShape& shape, Mapping mapping, const CacheOptions& options) {
  const CacheMachine machine = *find_cache_machine("mi300x");
  const auto result = simulate_caches(machine, PrefillAccesses(shape, mapping, false, machine.xcds), options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return *result;
}

TEST(SameSharing, IsSoWhereOnlyTheNamesOfHeadsDiffer) {
  PrefillShape shape;
  shape.heads = shape.kv_heads = 16;
  shape.seq_q = shape.seq_k = 4000;
  const auto same = [&](Mapping one, Mapping other) { return same_sharing(shape, one, other, false, 8); };
  EXPECT_TRUE(same(Mapping::kBlockFirst, Mapping::kBlockFirstSwizzled));
  EXPECT_FALSE(same(Mapping::kBlockFirst, Mapping::kHeadFirst));
  EXPECT_FALSE(same(Mapping::kHeadFirst, Mapping::kHeadFirstSwizzled));
  EXPECT_FALSE(same(Mapping::kBlockFirst, Mapping::kHeadFirstSwizzled));
  shape.kv_heads = 8;  // one to an XCD
  EXPECT_FALSE(same(Mapping::kBlockFirst, Mapping::kBlockFirstSwizzled));
  EXPECT_FALSE(same(Mapping::kBlockFirstSwizzled, Mapping::kHeadFirstSwizzled));  // 32 is the last block, of 32 rows
  shape.seq_q = 4096;
  EXPECT_TRUE(same(Mapping::kBlockFirstSwizzled, Mapping::kHeadFirstSwizzled));
  shape.causal = true;
  EXPECT_FALSE(same(Mapping::kBlockFirstSwizzled, Mapping::kHeadFirstSwizzled));
}

TEST(SameSharing, GivesTheSameResult) {
  PrefillShape shape;
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.seq_q = shape.seq_k = 2048;
  CacheOptions options;
  options.granularity = Granularity::kTile;
  ASSERT_TRUE(same_sharing(shape, Mapping::kBlockFirstSwizzled, Mapping::kHeadFirstSwizzled, false, 8));
  const CacheResult one = simulated(shape, Mapping::kBlockFirstSwizzled, options);
  const CacheResult other = simulated(shape, Mapping::kHeadFirstSwizzled, options);
  EXPECT_EQ(one.l2_hit_rate, other.l2_hit_rate);
  EXPECT_EQ(one.hbm_bytes, other.hbm_bytes);
  EXPECT_EQ(one.microseconds, other.microseconds);
}

TEST(PrefillAccesses, TilesGiveWhatLinesGive) {
  PrefillShape shape;
  shape.heads = shape.kv_heads = 16;
  shape.seq_q = shape.seq_k = 4096;
  for (const Mapping mapping : {Mapping::kBlockFirst, Mapping::kHeadFirst, Mapping::kHeadFirstSwizzled}) {
    CacheOptions options;
    options.granularity = Granularity::kLine;
    const CacheResult lines = simulated(shape, mapping, options);
    options.granularity = Granularity::kTile;
    const CacheResult tiles = simulated(shape, mapping, options);
    EXPECT_NEAR(tiles.l2_hit_rate, lines.l2_hit_rate, 0.02) << name_of(mapping);
    EXPECT_NEAR(tiles.hbm_bytes / lines.hbm_bytes, 1, 0.02) << name_of(mapping);
  }
}

TEST(PrefillAccesses, AWindowGivesWhatTheWholeGridGives) {
  PrefillShape shape;
  shape.heads = shape.kv_heads = 64;
  shape.seq_q = shape.seq_k = 8192;
  for (const Mapping mapping : {Mapping::kHeadFirst, Mapping::kHeadFirstSwizzled}) {
    CacheOptions options;
    options.granularity = Granularity::kTile;
    const CacheResult whole = simulated(shape, mapping, options);
    EXPECT_TRUE(whole.whole());
    options.most_accesses = 600'000;
    const CacheResult window = simulated(shape, mapping, options);
    EXPECT_FALSE(window.whole());
    EXPECT_NEAR(window.l2_hit_rate, whole.l2_hit_rate, 0.03) << name_of(mapping);
    EXPECT_NEAR(window.fabric_bytes / whole.fabric_bytes, 1, 0.2) << name_of(mapping);
  }
}

TEST(PrefillAccesses, OrderOfTheMappingsOfLongSequences) {
  // 128 heads of 128K rows on an MI300X, a short window. README.md of machine/ has the figures of a longer one.
  PrefillShape shape;
  shape.heads = shape.kv_heads = 128;
  shape.seq_q = shape.seq_k = 131072;
  CacheOptions options;
  options.most_accesses = 5'000'000;
  const double block = simulated(shape, Mapping::kBlockFirst, options).l2_hit_rate;
  const double head = simulated(shape, Mapping::kHeadFirst, options).l2_hit_rate;
  const double swizzled = simulated(shape, Mapping::kHeadFirstSwizzled, options).l2_hit_rate;
  EXPECT_LT(block, 0.1);
  EXPECT_GT(head, 0.3);
  EXPECT_LT(head, 0.9);
  EXPECT_GT(swizzled, 0.93);
}

TEST(PrefillShape, ErrorsNameTheParameter) {
  const auto message = [](auto change) {
    PrefillShape shape;
    change(shape);
    return check(shape).message();
  };
  EXPECT_EQ(message([](PrefillShape&) {}), "");
  EXPECT_EQ(message([](PrefillShape& s) { s.heads = 0; }), "heads is 0: allowed is 1..65536");
  EXPECT_EQ(message([](PrefillShape& s) { s.heads = 6, s.kv_heads = 4; }),
            "kv_heads is 4: allowed are divisors of heads, which is 6");
  EXPECT_EQ(message([](PrefillShape& s) { s.window = 4; }), "window is 4: allowed is 0 without causal");
  EXPECT_EQ(message([](PrefillShape& s) { s.heads = 1 << 10, s.seq_q = 1 << 26; }),
            "batch * heads * query blocks is 536870912: allowed are at most 16777216 works");
}

}  // namespace
}  // namespace farwarp::attention
