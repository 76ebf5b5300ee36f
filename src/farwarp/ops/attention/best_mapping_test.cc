#include "farwarp/ops/attention/best_mapping.h"

#include <gtest/gtest.h>

#include <chrono>

namespace farwarp::attention {
namespace {

PrefillShape shape_of(int heads, int kv_heads, int seq) {
  PrefillShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.seq_q = shape.seq_k = seq;
  return shape;
}

const CacheMachine& machine(std::string_view name) {
  for (const CacheMachine& preset : cache_machine_presets()) {
    if (preset.name == name) return preset;
  }
  std::abort();
}

TEST(BestMapping, IsSwizzledHeadFirstWherePublishedFiguresSaySo) {
  // arXiv 2511.02132: with 64 heads or more it is the fastest; with few heads all are equal.
  for (const int heads : {8, 64, 128}) {
    for (const int seq : {8192, 32768, 131072}) {
      const auto best = best_mapping(machine("mi300x"), shape_of(heads, heads, seq));
      ASSERT_TRUE(best.ok());
      EXPECT_EQ(*best, Mapping::kHeadFirstSwizzled) << heads << " heads, " << seq << " rows";
    }
  }
}

TEST(BestMapping, OrderOfCosts) {
  for (const int seq : {32768, 131072}) {
    const auto costs = mapping_costs(machine("mi300x"), shape_of(128, 128, seq), false);
    ASSERT_TRUE(costs.ok());
    EXPECT_LT((*costs)[3].microseconds, (*costs)[2].microseconds) << seq;
    EXPECT_LT((*costs)[2].microseconds, (*costs)[0].microseconds) << seq;
  }
  // Eight KV heads on eight XCDs: both swizzles keep each on one XCD.
  const auto costs = mapping_costs(machine("mi300x"), shape_of(64, 8, 32768), false);
  ASSERT_TRUE(costs.ok());
  EXPECT_NEAR((*costs)[1].microseconds / (*costs)[3].microseconds, 1, 0.01);
  EXPECT_LT((*costs)[3].microseconds, (*costs)[0].microseconds);
}

TEST(BestMapping, IsTheSameEachTime) {
  const auto first = mapping_costs(machine("mi300x"), shape_of(12, 12, 20000), true);
  const auto second = mapping_costs(machine("mi300x"), shape_of(12, 12, 20000), true);
  ASSERT_TRUE(first.ok() && second.ok());
  for (std::size_t i = 0; i < first->size(); ++i) EXPECT_EQ((*first)[i].microseconds, (*second)[i].microseconds);
}

TEST(BestMapping, OneL2NeedsNoSwizzle) {
  CacheMachine one = machine("h200");
  one.xcds = 1;
  EXPECT_EQ(*best_mapping(one, shape_of(8, 8, 8192)), Mapping::kHeadFirst);
}

TEST(BestMapping, ErrorsNameTheParameter) {
  EXPECT_EQ(best_mapping(machine("mi300x"), shape_of(8, 3, 64)).status().message(),
            "kv_heads is 3: allowed are divisors of heads, which is 8");
  CacheMachine broken = machine("mi300x");
  broken.hbm_gb_s = 0;
  EXPECT_EQ(best_mapping(broken, shape_of(8, 8, 64)).status().message(),
            "hbm_gb_s is 0: allowed is a number above 0, at most 1e9");
}

}  // namespace
}  // namespace farwarp::attention
