#include "farwarp/ops/attention/mapping.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "farwarp/tile/gemm/xcd.h"

namespace farwarp::attention {
namespace {

/// Calls `test(batches, heads, query_blocks, xcds)` for all small sizes.
template <class Test>
void for_small_sizes(const Test& test) {
  for (int batches = 1; batches <= 4; ++batches) {
    for (int heads = 1; heads <= 17; ++heads) {
      for (int query_blocks = 1; query_blocks <= 9; ++query_blocks) {
        for (const int xcds : {1, 2, 4, 8}) test(batches, heads, query_blocks, xcds);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// The published formulas, with divisions. Head-first swizzled is not Fig. 11 of the paper, which gives some works
/// twice when there are several batches or when xcds does not divide heads.
WorkPlace published(Mapping mapping, bool folded, int batches, int heads, int query_blocks, int xcds, int w) {
  const int works = batches * heads * query_blocks;
  WorkPlace place{};
  switch (mapping) {
    case Mapping::kBlockFirst: place = {w / (heads * query_blocks), w % heads, w / heads % query_blocks}; break;
    case Mapping::kBlockFirstSwizzled:
      place = {w / (heads * query_blocks), tile::work_on_xcd(w % heads, heads, xcds), w / heads % query_blocks};
      break;
    case Mapping::kHeadFirst: place = {w / (heads * query_blocks), w / query_blocks % heads, w % query_blocks}; break;
    case Mapping::kHeadFirstSwizzled: {
      const int moved = tile::work_on_xcd(w, works, xcds);
      place = {moved / (heads * query_blocks), moved / query_blocks % heads, moved % query_blocks};
      break;
    }
  }
  if (folded) place.query_block = query_blocks - 1 - place.query_block;
  return place;
}

TEST(Mapping, EveryPlaceIsComputedOnce) {
  for_small_sizes([](int batches, int heads, int query_blocks, int xcds) {
    for (const Mapping mapping : kMappings) {
      for (const bool folded : {false, true}) {
        const WorkGrid grid = work_grid(mapping, folded, batches, heads, query_blocks, xcds);
        ASSERT_EQ(grid.works, batches * heads * query_blocks);
        std::vector<int> seen(grid.works);
        for (int number = 0; number < grid.works; ++number) {
          const WorkPlace place = place_of(grid, number);
          const WorkPlace expected = published(mapping, folded, batches, heads, query_blocks, xcds, number);
          ASSERT_EQ(place.batch, expected.batch) << name_of(mapping) << " " << number;
          ASSERT_EQ(place.head, expected.head) << name_of(mapping) << " " << number;
          ASSERT_EQ(place.query_block, expected.query_block) << name_of(mapping) << " " << number;
          const int at = (place.batch * heads + place.head) * query_blocks + place.query_block;
          ASSERT_TRUE(at >= 0 && at < grid.works);
          ASSERT_EQ(seen[at]++, 0) << name_of(mapping) << ", batches " << batches << ", heads " << heads
                                   << ", query blocks " << query_blocks << ", XCDs " << xcds;
        }
      }
    }
  });
}

TEST(Mapping, FoldedBeginsWithTheLastQueryBlock) {
  for (const Mapping mapping : kMappings) {
    EXPECT_EQ(place_of(work_grid(mapping, true, 2, 8, 5, 8), 0).query_block, 4) << name_of(mapping);
    EXPECT_EQ(place_of(work_grid(mapping, false, 2, 8, 5, 8), 0).query_block, 0) << name_of(mapping);
  }
}

/// The (batch, head) pairs of each XCD, or with `first`, of its first works only.
std::vector<std::set<int>> heads_of_xcds(const WorkGrid& grid, int heads, int xcds, int first) {
  std::vector<std::set<int>> sets(xcds);
  for (int number = 0; number < grid.works && number < first * xcds; ++number) {
    const WorkPlace place = place_of(grid, number);
    sets[number % xcds].insert(place.batch * heads + place.head);
  }
  return sets;
}

TEST(Mapping, SwizzledHeadFirstKeepsAHeadOnFewXcds) {
  for_small_sizes([](int batches, int heads, int query_blocks, int xcds) {
    const WorkGrid grid = work_grid(Mapping::kHeadFirstSwizzled, false, batches, heads, query_blocks, xcds);
    const auto sets = heads_of_xcds(grid, heads, xcds, grid.works);
    for (int head = 0; head < batches * heads; ++head) {
      int on = 0;
      for (const auto& set : sets) on += static_cast<int>(set.count(head));
      if (batches * heads % xcds == 0) {
        ASSERT_EQ(on, 1);
      } else if (grid.xcd_works >= query_blocks) {
        ASSERT_LE(on, 2);
      }
    }
  });
}

TEST(Mapping, HeadsOfAnXcdsFirstWorks) {
  // An XCD of an MI300X has 38 works at once. 128 heads of 64 query blocks.
  const auto heads_at_once = [](Mapping mapping) {
    return static_cast<int>(heads_of_xcds(work_grid(mapping, false, 1, 128, 64, 8), 128, 8, 38)[0].size());
  };
  EXPECT_EQ(heads_at_once(Mapping::kBlockFirst), 16);
  EXPECT_EQ(heads_at_once(Mapping::kBlockFirstSwizzled), 16);
  EXPECT_EQ(heads_at_once(Mapping::kHeadFirst), 5);
  EXPECT_EQ(heads_at_once(Mapping::kHeadFirstSwizzled), 1);
}

TEST(Mapping, IsUsableInConstantExpressions) {
  constexpr WorkGrid kGrid = work_grid(Mapping::kHeadFirstSwizzled, false, 1, 16, 4, 8);
  static_assert(place_of(kGrid, 8).head == 0 && place_of(kGrid, 8).query_block == 1);
  static_assert(place_of(kGrid, 1).head == 2 && place_of(kGrid, 1).query_block == 0);
}

}  // namespace
}  // namespace farwarp::attention
