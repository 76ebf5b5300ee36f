// Clocks of multiprocessors that start anywhere, against the device's clock with its ticks.
#include "farwarp/runtime/trace_clocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "farwarp/base/sizes.h"

namespace farwarp {
namespace {

constexpr int kBlocks = 132, kWarps = 2, kPerWarp = 3;
constexpr double kGhz = 1.755;
constexpr std::uint64_t kTick = 32;

/// A launch of 132 blocks, each on a multiprocessor whose counter starts anywhere. Block b's warp 1 has records at
/// b * 10 + 100 ns and 200 ns later; the longest of them takes 50 ns.
struct Launch {
  std::vector<TraceBlock> blocks;
  std::vector<TraceRecord> records;
  std::vector<std::uint32_t> dropped;

  explicit Launch(double length_ns) : records(kBlocks * kWarps * kPerWarp), dropped(kBlocks * kWarps) {
    std::mt19937_64 random(7);
    constexpr std::uint64_t kOrigin = 1'764'000'000'000'000'000;
    for (int b = 0; b < kBlocks; ++b) {
      const std::uint64_t counter = random() >> 8;
      const auto cycles = [&](double ns) { return counter + static_cast<std::uint64_t>(ns * kGhz); };
      const auto ns = [&](double since) { return (kOrigin + static_cast<std::uint64_t>(since)) / kTick * kTick; };
      const double begin = 10.0 * b, end = begin + length_ns;
      blocks.push_back({ns(begin), cycles(begin), ns(end), cycles(end), size(b), 0});
      for (int i = 0; i < 2; ++i) {
        TraceRecord& record = records[size((b * kWarps + 1) * kPerWarp + i)];
        record.begin = cycles(begin + 100 + 200 * i);
        record.length = static_cast<std::uint32_t>(50 * kGhz);
        record.where = size(b);
      }
    }
    dropped[3] = 5;
  }
  DeviceTrace trace() const {
    DeviceTrace trace;
    add_launch({"k", blocks, kWarps, records, kPerWarp, dropped}, trace);
    return trace;
  }
};

TEST(TraceClocks, GiveNanosecondsWithinATick) {
  const DeviceTrace trace = Launch(20'011).trace();
  ASSERT_EQ(trace.launches.size(), 1u);
  const TracedLaunch& launch = trace.launches[0];
  EXPECT_EQ(launch.kernel, "k");
  EXPECT_EQ(launch.dropped, 5u);
  ASSERT_EQ(launch.events.size(), size(2 * kBlocks));
  EXPECT_LE(trace.clock_error, 1.5 * kTick);
  EXPECT_GT(trace.clock_error, 0);
  for (std::size_t i = 0; i < launch.events.size(); ++i) {
    const TraceEvent& event = launch.events[i];
    const double since = event.begin - launch.blocks[0].begin;
    EXPECT_NEAR(since, static_cast<double>(10 * event.block + 100 + 200 * static_cast<int>(i % 2)), 2 * kTick) << i;
    EXPECT_NEAR(event.length, 50, 1) << i;
    EXPECT_EQ(event.warp, 1);
    EXPECT_EQ(event.record.where, size(event.block));
  }
}

TEST(TraceClocks, ABlockThatDidNotEndHasNoLength) {
  Launch launch(20'000);
  launch.blocks[5].end_ns = launch.blocks[5].end_cycles = 0;
  const DeviceTrace trace = launch.trace();
  EXPECT_EQ(trace.launches[0].blocks[5].begin, trace.launches[0].blocks[5].end);
  EXPECT_LE(trace.clock_error, 1.5 * kTick);
}

TEST(TraceClocks, AClockThatRunsAtAnotherRateIsSeen) {
  Launch launch(20'000);
  launch.blocks[9].end_ns += 3'000;
  EXPECT_GT(launch.trace().clock_error, 1'000);
}

}  // namespace
}  // namespace farwarp
