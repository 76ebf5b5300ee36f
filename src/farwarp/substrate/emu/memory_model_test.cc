// The litmus tests. Every mistake is caught within 500 seeds; the correct protocol never fails in 500.
#include <functional>

#include "farwarp/substrate/emu/litmus_rig_test.h"

namespace farwarp::emu {
namespace {

class MemoryModelTest : public testing::TestWithParam<TargetKind> {
 protected:
  /// The number of the kSeeds schedules that gave a wrong answer, or -1 if a launch failed. races_ counts the schedules
  /// with a data race.
  int wrong_answers(const char* kernel, int ranks, int variant, LaunchShape shape,
                    const std::function<bool(const Rig&)>& right, int count = 0) {
    int wrong = 0;
    races_ = 0;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      rig_.start(static_cast<std::uint64_t>(seed));
      const Status status = rig_.run(kernel, ranks, variant, shape, count);
      EXPECT_TRUE(status.ok()) << kernel << ", seed " << seed << ": " << status.to_string();
      if (!status.ok()) return -1;
      wrong += !right(rig_);
      races_ += !rig_.machine().report().race.empty();
    }
    return wrong;
  }

  /// Expects that the right variants never fail and have no race, and that the wrong variants sometimes fail.
  void expect(const char* kernel, int ranks, LaunchShape shape, const std::function<bool(const Rig&)>& right,
              const std::vector<int>& right_variants, const std::vector<int>& wrong_variants, int count = 0) {
    for (const int variant : right_variants) {
      EXPECT_EQ(wrong_answers(kernel, ranks, variant, shape, right, count), 0) << kernel << ", variant " << variant;
      EXPECT_EQ(races_, 0) << kernel << ", variant " << variant << ": " << rig_.machine().report().race;
    }
    for (const int variant : wrong_variants) {
      const int caught = wrong_answers(kernel, ranks, variant, shape, right, count);
      EXPECT_GT(caught, 0) << kernel << ", variant " << variant;
      RecordProperty(std::string(kernel) + "_" + std::to_string(variant), caught);
    }
  }

  bool sm90() const { return GetParam() == TargetKind::kEmuSm90; }

  Rig rig_{GetParam()};
  int races_ = 0;
};

std::function<bool(const Rig&)> all_results(int rank, int count, std::uint64_t value, std::uint64_t step = 0) {
  return [=](const Rig& rig) {
    for (int i = 0; i < count; ++i) {
      if (rig.result(rank, i) != value + step * static_cast<std::uint64_t>(i)) return false;
    }
    return true;
  };
}

TEST_P(MemoryModelTest, MessageNeedsReleaseAndAcquire) {
  expect("litmus_message", 2, {}, all_results(1, 8, 100, 1), {kReleaseStoreAcquireLoad, kFences},
         {kNoRelease, kNoAcquire});
}

TEST_P(MemoryModelTest, NamesTheRaceWhateverItReturned) {
  // A plain load after a flag that orders nothing is a race in every schedule, also if it returns the right value.
  wrong_answers("litmus_message", 2, kNoRelease, {}, all_results(1, 8, 100, 1));
  EXPECT_EQ(races_, kSeeds);
  const std::string race = rig_.machine().report().race;
  EXPECT_NE(race.find("litmus_message: device 1, block 0, thread 0 reads 8 bytes at byte 0 of a 65536-byte allocation"),
            std::string::npos)
      << race;
}

TEST_P(MemoryModelTest, SynchronisationIsTransitive) {
  expect("litmus_chain", 3, {}, all_results(2, 1, 7), {kReleaseStoreAcquireLoad, kFences}, {kNoRelease, kNoAcquire});
}

TEST_P(MemoryModelTest, AThreadsOwnAdditionContinuesARelease) {
  expect("litmus_sequence", 1, {.blocks = 2}, all_results(0, 1, 9), {kRight}, {kNoRelease});
}

TEST_P(MemoryModelTest, ScopeMustIncludeBothThreads) {
  expect("litmus_blocks", 1, {.blocks = 2}, all_results(0, 1, 9), {kRight}, {kScopeTooNarrow});
}

TEST_P(MemoryModelTest, ChipletScopeIncludesTheBlocksOfAnXcd) {
  rig_.open(4, 2);
  expect("litmus_chiplet", 1, {.blocks = 4}, all_results(0, 1, 9), {kRight, kScopeTooNarrow}, {}, 2);
  expect("litmus_chiplet", 1, {.blocks = 4}, all_results(0, 1, 9), {kRight}, {kScopeTooNarrow}, 1);
  EXPECT_GT(races_, 0);
  rig_.open(4, 1);
  expect("litmus_chiplet", 1, {.blocks = 4}, all_results(0, 1, 9), {kRight, kScopeTooNarrow}, {}, 1);
}

TEST_P(MemoryModelTest, CountersOfAnXcdNeedAWiderReleaseBetweenXcds) {
  const LaunchShape shape{.blocks = 8};
  for (const int xcds : {2, 4}) {
    rig_.open(8, xcds);
    expect("litmus_chiplets", 1, shape, all_results(0, 1, 8), {kRight}, {kNoRelease, kNoAcquire, kScopeTooNarrow},
           xcds);
    EXPECT_GT(races_, kSeeds / 2) << "every schedule in which both XCDs have used one counter";
  }
  rig_.open(8, 1);
  expect("litmus_chiplets", 1, shape, all_results(0, 1, 8), {kRight, kNoRelease, kScopeTooNarrow}, {kNoAcquire}, 1);
}

TEST_P(MemoryModelTest, WhatAnXcdsFirstBlockHasAcquiredIsPassedOn) {
  const LaunchShape shape{.blocks = 8};
  for (const int xcds : {2, 4}) {
    rig_.open(8, xcds);
    expect("litmus_schedulers", 1, shape, all_results(0, 8, 8, 0), {kRight}, {kNoRelease, kNoAcquire, kNoBarrier},
           xcds);
  }
}

TEST_P(MemoryModelTest, ExchangesOfAnyWordContinueReleases) {
  expect("litmus_last_exchange", 1, {.blocks = 8, .threads = 32}, all_results(0, 1, 8), {kRight}, {});
}

TEST_P(MemoryModelTest, ReadModifyWritesContinueReleases) {
  expect("litmus_last_block", 1, {.blocks = 8, .threads = 32}, all_results(0, 1, 8), {kRight},
         {kNoRelease, kNoAcquire});
}

TEST_P(MemoryModelTest, LanesNeedWarpSync) {
  expect("litmus_warp", 1, {.threads = 64, .shared_bytes = 512}, all_results(0, 64, 5), {kRight}, {kNoBarrier});
}

TEST_P(MemoryModelTest, BarrierDoesNotDrainWavesOfAmd) {
  const std::vector<int> drained{kRight};
  const std::vector<int> undrained{kNoDrain};
  const LaunchShape shape{.threads = 128};
  if (sm90()) {
    expect("litmus_block_signal", 2, shape, all_results(1, 128, 3), {kRight, kNoDrain}, {});
  } else {
    expect("litmus_block_signal", 2, shape, all_results(1, 128, 3), {kRight}, {kNoDrain});
  }
}

TEST_P(MemoryModelTest, SixteenBytesMayTear) {
  EXPECT_GT(wrong_answers("litmus_tearing", 2, 0, {}, all_results(1, 1, 0)), 0);
}

TEST_P(MemoryModelTest, PacketsAreWholeOrAbsent) {
  int halves = 0;
  EXPECT_EQ(wrong_answers("litmus_packets", 2, 0, {},
                          [&halves](const Rig& rig) {
                            halves += rig.result(1, 1) > 0;
                            return rig.result(1, 0) == 0;
                          }),
            0);
  EXPECT_GT(halves, 0) << "no schedule ever showed half a packet";
}

TEST_P(MemoryModelTest, BulkStoreNeedsProxyFenceAndFullWait) {
  if (!sm90()) GTEST_SKIP() << "no bulk copies";
  expect("litmus_bulk_store", 2, {.threads = 64, .shared_bytes = 1024}, all_results(1, 64, 6),
         {kRight, kFences, kNewerPending}, {kNoProxyFence, kWaitReadOnly, kWaitOlderOnly});
}

TEST_P(MemoryModelTest, SourceOfBulkStoreIsReadLate) {
  if (!sm90()) GTEST_SKIP() << "no bulk copies";
  expect("litmus_bulk_reuse", 1, {.shared_bytes = 1024}, all_results(0, 2, 1), {kRight}, {kNoWait});
}

TEST_P(MemoryModelTest, BulkLoadNeedsProxyFenceAndMbarrier) {
  if (!sm90()) GTEST_SKIP() << "no bulk copies";
  expect("litmus_bulk_load", 2, {.threads = 32, .shared_bytes = 1024}, all_results(1, 8, 4), {kRight, kFences},
         {kNoProxyFence, kNoWait});
}

// ---- kernel boundaries ----

/// The number of the kSeeds schedules in which rank 1 missed some of eight words that another kernel had written
/// before.
int missed(Rig& rig, const std::function<void(Rig&)>& work) {
  int missed = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    rig.start(static_cast<std::uint64_t>(seed));
    work(rig);
    EXPECT_TRUE(rig.synchronize(0).ok());
    EXPECT_TRUE(rig.synchronize(1).ok());
    missed += !all_results(1, 8, 8)(rig);
  }
  return missed;
}

TEST_P(MemoryModelTest, KernelsOfAStreamKnowTheirPredecessors) {
  EXPECT_EQ(missed(rig_,
                   [](Rig& rig) {
                     EXPECT_TRUE(rig.launch("litmus_write", 1, kRight, {}, 1).ok());
                     EXPECT_TRUE(rig.launch("litmus_read", 1, kRight, {}, 1).ok());
                   }),
            0);
}

TEST_P(MemoryModelTest, KernelsOfOtherDevicesAreKnownOnlyOnceTheHostHasWaited) {
  EXPECT_GT(missed(rig_,
                   [](Rig& rig) {
                     EXPECT_TRUE(rig.launch("litmus_write", 0, kRight, {}, 1).ok());
                     rig.machine().enqueue_delay(rig.personality(), 1, 0, 1'000'000);  // the writer ends before this
                     EXPECT_TRUE(rig.launch("litmus_read", 1, kRight, {}, 1).ok());
                   }),
            0);
  EXPECT_EQ(missed(rig_,
                   [](Rig& rig) {
                     EXPECT_TRUE(rig.launch("litmus_write", 0, kRight, {}, 1).ok());
                     EXPECT_TRUE(rig.synchronize(0).ok());
                     EXPECT_TRUE(rig.launch("litmus_read", 1, kRight, {}, 1).ok());
                   }),
            0);
}

TEST_P(MemoryModelTest, KernelsKnowWhatTheirPredecessorsAcquired) {
  const auto exchange = [](int sender, int receiver) {
    return [=](Rig& rig) {
      EXPECT_TRUE(rig.launch("litmus_send", 0, sender).ok());
      EXPECT_TRUE(rig.launch("litmus_acquire", 1, receiver).ok());
      EXPECT_TRUE(rig.launch("litmus_read", 1, kRight, {}, 1).ok());
    };
  };
  EXPECT_EQ(missed(rig_, exchange(kRight, kRight)), 0);
  EXPECT_EQ(missed(rig_, exchange(kFences, kFences)), 0);
  EXPECT_GT(missed(rig_, exchange(kNoRelease, kRight)), 0);
  EXPECT_GT(missed(rig_, exchange(kRight, kNoAcquire)), 0);
}

INSTANTIATE_TEST_SUITE_P(Personalities, MemoryModelTest, testing::ValuesIn(kPersonalities),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace farwarp::emu
