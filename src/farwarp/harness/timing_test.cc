#include "farwarp/harness/timing.h"

#include <gtest/gtest.h>

namespace farwarp::harness {
namespace {

TEST(Summarise, Quantiles) {
  const Timing timing = summarise({5, 1, 4, 2, 3});
  EXPECT_EQ(timing.median, 3);
  EXPECT_EQ(timing.min, 1);
  EXPECT_EQ(timing.n, 5);
  EXPECT_EQ(timing.samples, (std::vector<double>{5, 1, 4, 2, 3}));
  EXPECT_DOUBLE_EQ(timing.p10, 1.4);
  EXPECT_DOUBLE_EQ(timing.p90, 4.6);
  EXPECT_EQ(summarise({7}).p90, 7);
  EXPECT_EQ(summarise({}).n, 0);
  EXPECT_DOUBLE_EQ(summarise({1, 2}).median, 1.5);
}

WorldOptions two_ranks() {
  WorldOptions options;
  options.target = TargetKind::kEmuSm90;
  options.heap_bytes = 1 << 16;
  return options;
}

// Rank 1 works 300 us longer than rank 0. Its 700 us of preparation must not be counted.
TEST(DeviceTimer, CountsTheWorkOfTheSlowestRank) {
  const Status status = run_ranks(2, [](std::shared_ptr<Bootstrap> bootstrap) -> Status {
    auto world = World::create(std::move(bootstrap), two_ranks());
    if (!world.ok()) return world.status();
    Device& device = world->device();
    const auto stream = device.create_stream();
    auto timer = DeviceTimer::create(*world, *stream);
    if (!timer.ok()) return timer.status();
    const std::uint64_t late = world->rank() == 1 ? 1000 : 0;
    std::vector<double> mine;
    for (int i = 0; i < 3; ++i) {
      const auto us = timer->sample([&] { return device.enqueue_delay(*stream, 700 * late); },
                                    [&] { return device.enqueue_delay(*stream, 100'000 + 300 * late); }, i == 1);
      if (!us.ok()) return us.status();
      mine.push_back(*us);
      EXPECT_NEAR(*us, world->rank() == 1 ? 400 : 100, 5);
    }
    const auto slowest = timer->slowest(mine);
    if (!slowest.ok()) return slowest.status();
    for (const double us : *slowest) EXPECT_NEAR(us, 400, 5);
    const double mhz = world->rank() == 1 ? 1200 : 1900;
    const auto with_clocks = timer->slowest({mine[0], world->rank() == 1 ? 1.0 : 2.0}, {mhz, mhz});
    if (!with_clocks.ok()) return with_clocks.status();
    EXPECT_EQ(with_clocks->us[1], 2);
    EXPECT_EQ(with_clocks->mhz, (std::vector<double>{1200, 1900})) << "the clock of the slowest rank";
    EXPECT_EQ(timer->clock_mhz(), 0) << "the emulator has none";
    EXPECT_FALSE(timer->slowest(std::vector<double>(world->rank() + 1u)).ok()) << "different numbers of samples";
    const Status closed = timer->close();
    device.destroy_stream(*stream);
    return closed;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(DeviceTimer, HandsOnWhatFailsToBeEnqueued) {
  const Status status = run_ranks(2, [](std::shared_ptr<Bootstrap> bootstrap) -> Status {
    auto world = World::create(std::move(bootstrap), two_ranks());
    if (!world.ok()) return world.status();
    const auto stream = world->device().create_stream();
    auto timer = DeviceTimer::create(*world, *stream);
    if (!timer.ok()) return timer.status();
    const auto us = timer->sample([] { return Status{}; }, [] { return invalid_argument("not today"); }, true);
    EXPECT_EQ(us.status().message(), "not today");
    world->device().destroy_stream(*stream);
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace farwarp::harness
