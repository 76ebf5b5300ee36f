// Schedules replay, differ between seeds, do not depend on the host's threads, and are fast enough.
#include <atomic>
#include <bit>
#include <chrono>
#include <set>
#include <thread>

#include "farwarp/base/host_activity.h"
#include "farwarp/substrate/emu/litmus_rig_test.h"

namespace farwarp::emu {
namespace {

class ScheduleTest : public testing::TestWithParam<TargetKind> {
 protected:
  std::uint64_t hash_of(std::uint64_t seed, bool adversarial = true) {
    rig_.start(seed, adversarial);
    EXPECT_TRUE(rig_.run("litmus_packets", 2, kRight).ok());
    EXPECT_TRUE(rig_.run("litmus_block_signal", 2, kRight, {.threads = 128}).ok());
    EXPECT_TRUE(rig_.run("litmus_ping_pong", 2, kRight, {}, 20).ok());
    return rig_.machine().report().hash;
  }

  Rig rig_{GetParam()};
};

TEST_P(ScheduleTest, ReplaysExactly) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(hash_of(seed), hash_of(seed));
    EXPECT_EQ(hash_of(seed, false), hash_of(seed, false));
  }
}

TEST_P(ScheduleTest, EverySeedIsAnotherSchedule) {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) hashes.insert(hash_of(seed));
  EXPECT_EQ(hashes.size(), 200u);
}

/// Runs one registered host thread per rank, as in-process groups do; `jitter` disturbs their timing.
std::uint64_t hash_with_host_threads(Rig& rig, std::uint64_t seed, int jitter) {
  rig.start(seed);
  std::atomic<int> failures = 0;
  std::vector<std::thread> ranks;
  HostThreadScope self;  // nothing runs before all have registered
  std::atomic<int> registered = 0;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      HostThreadScope scope;
      ++registered;
      while (registered < 2) std::this_thread::yield();
      for (int i = 0; i < 5; ++i) {
        if (jitter > 0) std::this_thread::sleep_for(std::chrono::microseconds((rank * 7 + i * 3 + jitter) % 11 * 100));
        failures += !rig.launch("litmus_ping_pong", rank, kRight, {}, 10).ok();
        if (i % 2 == rank)
          failures += !rig.launch("litmus_collectives", rank, kRight, {.blocks = 2, .threads = 64}).ok();
        failures += !rig.synchronize(rank).ok();
      }
    });
  }
  {
    HostBlockedScope blocked;
    for (std::thread& rank : ranks) rank.join();
  }
  EXPECT_EQ(failures, 0);
  return rig.machine().report().hash;
}

TEST_P(ScheduleTest, DoesNotDependOnHostThreads) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const std::uint64_t expected = hash_with_host_threads(rig_, seed, 0);
    for (int jitter = 1; jitter <= 3; ++jitter) EXPECT_EQ(hash_with_host_threads(rig_, seed, jitter), expected);
  }
}

TEST_P(ScheduleTest, NoWakeUpIsLost) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    for (const int variant : {kReleaseStoreAcquireLoad, kFences, kNoRelease}) {
      rig_.start(seed, seed % 4 != 0);
      const Status status = rig_.run("litmus_ping_pong", 2, variant, {}, 100);
      ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.to_string();
    }
  }
}

TEST_P(ScheduleTest, WarpFunctionsKnowTheirLanes) {
  const int lanes = traits_of(GetParam()).warp_size;
  const std::uint64_t all = lanes == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << lanes) - 1;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    rig_.start(seed);
    ASSERT_TRUE(rig_.run("litmus_collectives", 1, kRight, {.blocks = 2, .threads = 256}).ok());
    for (int thread = 0; thread < 512; ++thread) {
      const int lane = thread % lanes;
      EXPECT_EQ(rig_.result(0, thread * 4), static_cast<std::uint64_t>(lanes * (lanes - 1) / 2) << 1 | 1);
      EXPECT_EQ(rig_.result(0, thread * 4 + 1), 0xaaaaaaaaaaaaaaaau & all);
      EXPECT_EQ(rig_.result(0, thread * 4 + 2), std::uint64_t{0xff} << lane / 8 * 8);
      EXPECT_EQ(rig_.result(0, thread * 4 + 3),
                std::uint64_t{1} << 40 | static_cast<std::uint64_t>(thread % 256 / lanes));
    }
  }
}

TEST_P(ScheduleTest, DelaysAreVirtual) {
  rig_.start(1);
  const std::uint64_t before = rig_.machine().nanoseconds();
  rig_.machine().enqueue_delay(GetParam(), 0, 0, 3'000'000'000);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(rig_.run("litmus_collectives", 1, kRight, {.threads = 64}).ok());
  EXPECT_GE(rig_.machine().nanoseconds() - before, 3'000'000'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_P(ScheduleTest, Throughput) {
  for (const bool adversarial : {false, true}) {
    rig_.start(1, adversarial);
    const Status status = rig_.run("litmus_stream", 3, kRight, {.blocks = 8, .threads = 256}, adversarial ? 4 : 20);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const ScheduleReport report = rig_.machine().report();
    const double rate = static_cast<double>(report.thread_steps) / report.seconds;
    std::printf("[          ] %s, %s: %.2f million thread-steps/s (%.2f s)\n", std::string(name_of(GetParam())).c_str(),
                adversarial ? "adversarial" : "fast", rate * 1e-6, report.seconds);
    RecordProperty(adversarial ? "adversarial_steps_per_s" : "fast_steps_per_s", static_cast<int>(rate));
    EXPECT_GT(rate, 50'000);  // sanitizer builds on a busy machine included
  }
}

INSTANTIATE_TEST_SUITE_P(Personalities, ScheduleTest, testing::ValuesIn(kPersonalities),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace farwarp::emu
