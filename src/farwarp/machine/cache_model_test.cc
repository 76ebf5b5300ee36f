#include "farwarp/machine/cache_model.h"

#include <gtest/gtest.h>

#include <vector>

namespace farwarp {
namespace {

/// Workgroup w reads `tiles` tiles of object w / sharing, once or several times, and writes one tile.
class Streams : public AccessPlan {
 public:
  Streams(int workgroups, int sharing, int tiles, int times = 1)
      : workgroups_(workgroups), sharing_(sharing), tiles_(tiles), times_(times) {}
  std::int64_t workgroups() const override { return workgroups_; }
  std::int64_t accesses(std::int64_t) const override { return tiles_ * times_ + 1; }
  void read(std::int64_t workgroup, std::int64_t first, std::span<TileAccess> out) const override {
    for (TileAccess& access : out) {
      const bool last = first == tiles_ * times_;
      access = {static_cast<std::uint32_t>(last ? 1000 + workgroup : workgroup / sharing_),
                static_cast<std::uint32_t>(last ? 0 : first % tiles_),
                4096,
                4096,
                last,
                last ? 0 : 1e5};
      ++first;
    }
  }
  std::int64_t tile_bytes() const override { return 4096; }

 private:
  int workgroups_, sharing_, tiles_, times_;
};

CacheMachine small_machine() {
  CacheMachine machine;
  machine.name = "small";
  machine.xcds = 2;
  machine.cus_per_xcd = 4;
  machine.l2 = {64 * 1024, 16, 128};
  machine.memory_side = {1024 * 1024, 16, 128};
  machine.l2_gb_s = 1000;
  machine.memory_side_gb_s = 1000;
  machine.hbm_gb_s = 500;
  machine.l2_ns = 100;
  machine.memory_side_ns = 200;
  machine.hbm_ns = 400;
  return machine;
}

CacheResult simulated(const CacheMachine& machine, const AccessPlan& plan, const CacheOptions& options = {}) {
  const auto result = simulate_caches(machine, plan, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return *result;
}

CacheOptions in_step(Granularity granularity) {
  CacheOptions options;
  options.skew = 0;
  options.granularity = granularity;
  return options;
}

TEST(CacheModel, CountsWhatIsSharedOnce) {
  for (const Granularity granularity : {Granularity::kLine, Granularity::kTile}) {
    // All eight workgroups run at once and read the same: on each XCD one of four misses, in step, and one XCD's misses
    // come from memory.
    const CacheResult result = simulated(small_machine(), Streams(8, 8, 100), in_step(granularity));
    EXPECT_EQ(result.granularity, granularity);
    EXPECT_TRUE(result.whole());
    EXPECT_DOUBLE_EQ(result.l2_hit_rate, 0.75);
    EXPECT_DOUBLE_EQ(result.l2_pending_rate, 0.75);
    EXPECT_DOUBLE_EQ(result.memory_side_hit_rate, 0.5);
    EXPECT_DOUBLE_EQ(result.l2_bytes, (8 * 100 + 8) * 4096.0);
    EXPECT_DOUBLE_EQ(result.fabric_bytes, (2 * 100 + 8) * 4096.0);
    EXPECT_DOUBLE_EQ(result.hbm_bytes, (100 + 8) * 4096.0);
    EXPECT_DOUBLE_EQ(result.balance, 1);
  }
}

TEST(CacheModel, NothingSharedNothingHit) {
  const CacheResult result = simulated(small_machine(), Streams(16, 1, 50), in_step(Granularity::kLine));
  EXPECT_EQ(result.l2_hit_rate, 0);
  EXPECT_EQ(result.memory_side_hit_rate, 0);
  EXPECT_DOUBLE_EQ(result.hbm_bytes, 16 * 51 * 4096.0);
}

TEST(CacheModel, CapacityDecides) {
  // One workgroup to an XCD, and two passes. 16 tiles fill an L2; 200 fit into the memory side.
  for (const Granularity granularity : {Granularity::kLine, Granularity::kTile}) {
    EXPECT_DOUBLE_EQ(simulated(small_machine(), Streams(2, 1, 16, 2), in_step(granularity)).l2_hit_rate, 0.5);
    EXPECT_DOUBLE_EQ(simulated(small_machine(), Streams(2, 1, 17, 2), in_step(granularity)).l2_hit_rate, 0);
    EXPECT_DOUBLE_EQ(simulated(small_machine(), Streams(1, 1, 200, 2), in_step(granularity)).memory_side_hit_rate, 0.5);
    EXPECT_DOUBLE_EQ(simulated(small_machine(), Streams(1, 1, 300, 2), in_step(granularity)).memory_side_hit_rate, 0);
  }
}

TEST(CacheModel, PendingLinesCountAsTheOptionSays) {
  CacheOptions options = in_step(Granularity::kTile);
  options.pending = PendingLine::kMiss;
  const CacheResult result = simulated(small_machine(), Streams(8, 8, 100), options);
  EXPECT_EQ(result.l2_hit_rate, 0);
  EXPECT_DOUBLE_EQ(result.l2_pending_rate, 0.75);
  EXPECT_DOUBLE_EQ(result.fabric_bytes, (2 * 100 + 8) * 4096.0);  // they are read once nevertheless
}

TEST(CacheModel, AnotherL2ServesAMiss) {
  CacheMachine machine = small_machine();
  machine.memory_side.bytes = 0;
  EXPECT_DOUBLE_EQ(simulated(machine, Streams(8, 8, 100), in_step(Granularity::kTile)).hbm_bytes, 208 * 4096.0);
  machine.reads_peer_l2 = true;
  const CacheResult result = simulated(machine, Streams(8, 8, 100), in_step(Granularity::kTile));
  EXPECT_DOUBLE_EQ(result.memory_side_hit_rate, 0.5);
  EXPECT_DOUBLE_EQ(result.hbm_bytes, 108 * 4096.0);
}

TEST(CacheModel, RoundRobinBeginsAtTheFirstXcd) {
  // Workgroups 0 and 2 share, and 1 and 3: sharers are on one XCD, wherever the round begins.
  class Alternating : public Streams {
   public:
    using Streams::Streams;
    std::int64_t accesses(std::int64_t workgroup) const override { return workgroup % 2 == 0 ? 51 : 26; }
  };
  CacheMachine machine = small_machine();
  for (const int first : {0, 1, 5}) {
    machine.first_xcd = first;
    const CacheResult result = simulated(machine, Alternating(8, 1, 50), in_step(Granularity::kTile));
    EXPECT_DOUBLE_EQ(result.balance, (51 + 26) / 2.0 / 51);
  }
}

TEST(CacheModel, ASlowMissKeepsSharersTogether) {
  // The first of the sharers waits longer than those that hit, so that they catch up. Without that, skew parts them.
  const Streams plan(64, 64, 2000);
  CacheOptions options;
  options.granularity = Granularity::kTile;
  options.skew = 0.3;
  CacheMachine machine = small_machine();
  EXPECT_GT(simulated(machine, plan, options).l2_hit_rate, 0.7);
  machine.memory_side_ns = machine.hbm_ns = machine.l2_ns;
  EXPECT_LT(simulated(machine, plan, options).l2_hit_rate, 0.3);
  options.skew = 0;
  EXPECT_GT(simulated(machine, plan, options).l2_hit_rate, 0.7);
}

TEST(CacheModel, IsTheSameForTheSameSeed) {
  const Streams plan(40, 5, 300);
  CacheOptions options;
  const CacheResult first = simulated(small_machine(), plan, options);
  EXPECT_EQ(first.l2_hit_rate, simulated(small_machine(), plan, options).l2_hit_rate);
  EXPECT_EQ(first.microseconds, simulated(small_machine(), plan, options).microseconds);
  options.seed = 2;
  EXPECT_NE(first.microseconds, simulated(small_machine(), plan, options).microseconds);
}

TEST(CacheModel, TilesAndAWindowGiveWhatLinesOfTheWholeGridGive) {
  const Streams plan(400, 40, 300);
  CacheOptions options;
  options.granularity = Granularity::kLine;
  const CacheResult whole = simulated(small_machine(), plan, options);
  EXPECT_TRUE(whole.whole());
  options.granularity = Granularity::kTile;
  const CacheResult tiles = simulated(small_machine(), plan, options);
  EXPECT_NEAR(tiles.l2_hit_rate, whole.l2_hit_rate, 0.02);
  EXPECT_NEAR(tiles.hbm_bytes / whole.hbm_bytes, 1, 0.03);
  options.most_accesses = 200 * 301;
  const CacheResult window = simulated(small_machine(), plan, options);
  EXPECT_EQ(window.simulated, 200);
  EXPECT_EQ(window.counted, 100);
  EXPECT_FALSE(window.whole());
  EXPECT_NEAR(window.l2_hit_rate, whole.l2_hit_rate, 0.05);
  EXPECT_NEAR(window.hbm_bytes / whole.hbm_bytes, 1, 0.1);
  EXPECT_NEAR(window.microseconds / whole.microseconds, 1, 0.1);
}

TEST(CacheModel, LinesAreChosenWhereTheyAreFew) {
  CacheOptions options;
  EXPECT_EQ(simulated(small_machine(), Streams(8, 8, 10), options).granularity, Granularity::kLine);
  options.most_line_accesses = 8 * 11 * 32 - 1;
  EXPECT_EQ(simulated(small_machine(), Streams(8, 8, 10), options).granularity, Granularity::kTile);
}

TEST(CacheModel, ErrorsNameTheOption) {
  CacheOptions options;
  options.skew = -1;
  EXPECT_EQ(simulate_caches(small_machine(), Streams(1, 1, 1), options).status().message(),
            "skew is -1: allowed is a number in 0..1");
  CacheMachine machine = small_machine();
  machine.l2.bytes = 0;
  EXPECT_EQ(simulate_caches(machine, Streams(1, 1, 1)).status().message(),
            "l2.bytes is 0: allowed is a multiple of line * ways = 2048, at most 16 GB");
}

}  // namespace
}  // namespace farwarp
