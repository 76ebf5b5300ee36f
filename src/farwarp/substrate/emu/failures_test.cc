// A failure ends the launch with a report that names the thread, the place and the error. It never crashes or hangs,
// and later launches work.
#include <chrono>

#include "farwarp/substrate/emu/litmus_rig_test.h"

namespace farwarp::emu {
namespace {

class FailuresTest : public testing::TestWithParam<TargetKind> {
 protected:
  void fails(int variant, const std::string& words, LaunchShape shape = {.threads = 64, .shared_bytes = 1024}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      rig_.start(seed);
      const Status status = rig_.run("litmus_misuse", 1, variant, shape);
      EXPECT_EQ(status.code(), StatusCode::kInternal) << status.to_string();
      EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("litmus_misuse"), std::string::npos) << status.message();
      const Status after = rig_.run("litmus_misuse", 1, kNothing, shape);
      EXPECT_TRUE(after.ok()) << "the device must work again: " << after.to_string();
    }
  }

  Rig rig_{GetParam()};
};

TEST_P(FailuresTest, ThreadsThatExitBeforeABarrier) { fails(kExitBeforeBarrier, "barrier"); }
TEST_P(FailuresTest, LanesAtDifferentBarriers) {
  fails(kDividedWarp, "warp");
  fails(kMixedWarpOps, "lanes of the warp are in different warp operations");
  fails(kBadLane, "lane 99");
}
TEST_P(FailuresTest, AddressesOutsideAllocations) {
  fails(kPastTheEnd, "0 bytes past the end of a 65536-byte allocation of device 0");
  fails(kMisaligned, "misaligned: Global access of 4 bytes");
  fails(kUnallocated, "outside device memory");
  fails(kOtherDevice, "another device's memory");
  fails(kBadShared, "out of bounds: Shared access of 4 bytes");
}
TEST_P(FailuresTest, NamesBlockAndThread) {
  rig_.start(1);
  const Status status = rig_.run("litmus_misuse", 1, kMisaligned, {});
  EXPECT_NE(status.message().find("litmus_misuse: device 0, block 0, thread 0"), std::string::npos) << status.message();
}
TEST_P(FailuresTest, MisusedMbarriersAndCopies) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "no bulk copies";
  const LaunchShape one{.threads = 1, .shared_bytes = 1024};
  fails(kUninitialisedMbarrier, "not initialised", one);
  fails(kCopyOutstanding, "exited", one);
}

TEST_P(FailuresTest, StallSaysWhoWaitsWhereForWhat) {
  fails(kWaitForever, "nothing can progress");
  const std::string report = rig_.machine().report().stall;
  EXPECT_NE(report.find("1 threads of litmus_misuse wait in park at "), std::string::npos) << report;
  EXPECT_NE(report.find("63 threads of litmus_misuse wait in block_sync at "), std::string::npos) << report;
  EXPECT_NE(report.find("polls byte 8192 of a 65536-byte allocation of device 0, which holds 0x0"), std::string::npos)
      << report;
}

TEST_P(FailuresTest, LoopsOutsideTheWaitPrimitives) {
  rig_.start(1, false);
  const Status status = rig_.run("litmus_misuse", 1, kSpin);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("litmus_misuse: device 0, block 0, thread 0: for 128 million steps"),
            std::string::npos)
      << status.message();
}

TEST_P(FailuresTest, DropsQueuedWorkOfTheDeviceOnly) {
  rig_.start(1);
  ASSERT_TRUE(rig_.launch("litmus_misuse", 0, kPastTheEnd).ok());
  ASSERT_TRUE(rig_.launch("litmus_message", 0, kRight).ok());  // would write to rank 1
  ASSERT_TRUE(rig_.launch("litmus_collectives", 1, kRight, {.threads = 64}).ok());
  EXPECT_EQ(rig_.synchronize(0).code(), StatusCode::kInternal);
  EXPECT_TRUE(rig_.synchronize(0).ok()) << "an error is reported once";
  EXPECT_TRUE(rig_.synchronize(1).ok());
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(rig_.memory(1)), 0u);
}

TEST_P(FailuresTest, DeadlinesPassInVirtualTime) {
  rig_.start(1);
  const auto start = std::chrono::steady_clock::now();
  const Status status = rig_.run("litmus_deadline", 1, kRight, {}, 60'000'000);  // a minute
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_GE(rig_.result(0), 60'000'000'000u);
  EXPECT_LT(rig_.result(0), 61'000'000'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_P(FailuresTest, RefusesWhatCannotBeResident) {
  const auto refused = [this](LaunchShape shape, const std::string& words) {
    const Status status = rig_.launch("litmus_misuse", 0, kNothing, shape);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  refused({.blocks = 0}, "blocks is 0");
  refused({.threads = 65}, "threads is 65, must be 1..64");
  refused({.shared_bytes = 1 << 20}, "shared_bytes is 1048576");
  const auto most = static_cast<std::size_t>(traits_of(GetParam()).shared_bytes);
  refused({.blocks = 9, .threads = 64, .shared_bytes = most}, "blocks is 9, must be 1..8");
  refused({.blocks = 257, .threads = 64}, "blocks is 257, must be 1..256");
}

TEST_P(FailuresTest, LaunchesThatDoNotFitTogetherTakeTurns) {
  const auto most = static_cast<std::size_t>(traits_of(GetParam()).shared_bytes);
  const StreamId other = rig_.machine().create_stream(GetParam(), 0);
  rig_.start(1);
  for (const StreamId stream : {StreamId{0}, other}) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(
          rig_.launch("litmus_collectives", 0, kRight, {.blocks = 8, .threads = 128, .shared_bytes = most}, 0, stream)
              .ok());
    }
  }
  EXPECT_TRUE(rig_.synchronize(0).ok());
  EXPECT_TRUE(rig_.synchronize(0, other).ok());
  rig_.machine().destroy_stream(GetParam(), 0, other);
}

INSTANTIATE_TEST_SUITE_P(Personalities, FailuresTest, testing::ValuesIn(kPersonalities),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace farwarp::emu
