// The host API: calls that fail, and unusual ones. On every available target.
#include "farwarp/ops/parallel_gemm/ag_gemm/ag_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::bf16_buffer;
using harness::bits_in;
using harness::DeviceBuffer;

constexpr int kRanks = 3;
constexpr int kM = 30, kN = 24 * kRanks, kK = 264;
constexpr int kOwned = kM / kRanks, kColumns = kN / kRanks;

/// All elements of x are 1 + rank (+ `more`), all of w are 1. So a row of y tells whose row of x it comes from.
struct Rank {
  World& world;
  AllGatherGemm op;
  Stream stream;
  DeviceBuffer x, w, y;

  Status launch(Stream on) { return op(x.get(), w.get(), nullptr, y.get(), on); }
  void expect_right(int more = 0) {
    ASSERT_TRUE(y.poison(stream).ok());
    ASSERT_TRUE(launch(stream).ok());
    const Status status = drain(world, stream);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const std::vector<std::uint16_t> bits = bits_in(y, stream);
    for (int i = 0; i < kM * kColumns; ++i)
      ASSERT_EQ(bits[i], bf16_from(static_cast<float>(kK * (1 + i / kColumns / kOwned + more))).bits) << i;
  }
};

class AllGatherGemmApi : public WorldTestBase {
 protected:
  static void on_ranks_of(const std::function<void(Rank&)>& body) {
    on_streams(kRanks, options(), [&](World& world, Stream stream) {
      auto op = AllGatherGemm::create(world, {.m = kM, .n = kN, .k = kK, .max_sms = 3});
      ASSERT_TRUE(op.ok()) << op.status().to_string();
      const auto filled = [&](std::size_t elements, int value) {
        return bf16_buffer(world.device(), stream, elements, static_cast<float>(value));
      };
      Rank rank{world,
                std::move(*op),
                stream,
                filled(kOwned * kK, 1 + world.rank()),
                filled(kColumns * kK, 1),
                filled(kM * kColumns, 0)};
      body(rank);
      EXPECT_TRUE(rank.op.close().ok());
      EXPECT_EQ(rank.launch(stream).code(), StatusCode::kMisuse);
    });
  }
};

TEST_P(AllGatherGemmApi, AnAbortedWorldComputesNothingUntilItRecovers) {
  on_ranks_of([](Rank& rank) { expect_aborted_until_recovered(rank); });
}

// As words, such elements look as if nothing had arrived. More calls than inboxes.
TEST_P(AllGatherGemmApi, RowsOfAllOnesAreNaNsAndHoldNobodyUp) {
  on_ranks_of([](Rank& rank) {
    for (int call = 0; call < 10; ++call) {
      const int odd = call % kOwned;  // the row of all ones, of each rank
      std::vector<std::uint16_t> x(kOwned * kK, bf16_from(static_cast<float>(1 + rank.world.rank() + call)).bits);
      std::fill_n(x.begin() + odd * kK, kK, std::uint16_t{0xffff});
      ASSERT_TRUE(rank.x.upload(x.data(), x.size() * 2, rank.stream).ok());
      ASSERT_TRUE(rank.launch(rank.stream).ok());
      const Status status = drain(rank.world, rank.stream);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const std::vector<std::uint16_t> bits = bits_in(rank.y, rank.stream);
      for (int i = 0; i < kM * kColumns; ++i) {
        const int row = i / kColumns;
        const bool is_nan = (bits[i] & 0x7fff) > 0x7f80;
        ASSERT_EQ(is_nan, row % kOwned == odd) << row;
        if (is_nan) continue;
        ASSERT_EQ(bits[i], bf16_from(static_cast<float>(kK * (1 + row / kOwned + call))).bits) << i;
      }
    }
  });
}

// The sequence of the two or four buffers continues when epochs wrap.
TEST_P(AllGatherGemmApi, EpochsWrap) {
  testing::set_first_epoch(0xfffffffau);
  on_ranks_of([](Rank& rank) {
    for (int call = 0; call < 12; ++call) {
      const std::vector<std::uint16_t> x(kOwned * kK, bf16_from(static_cast<float>(1 + rank.world.rank() + call)).bits);
      ASSERT_TRUE(rank.x.upload(x.data(), x.size() * 2, rank.stream).ok());
      rank.expect_right(call);
    }
  });
  testing::set_first_epoch(2);
}

// Two streams at once: one of the calls finds the operator busy, unless the other was over before it began. Nothing
// hangs.
TEST_P(AllGatherGemmApi, CallsInTwoStreamsAreFoundOut) {
  if (is_real()) GTEST_SKIP() << "whether they meet is the device's choice";
  int found = 0;
  on_ranks_of([&found](Rank& rank) {
    TwoStreams seen;
    expect_two_streams_end(rank, seen);
    if (rank.world.rank() == 0 && seen.told) ++found;
  });
  EXPECT_EQ(found, 1);
}

INSTANTIATE_TEST_SUITE_P(Targets, AllGatherGemmApi, ::testing::ValuesIn(kAllTargets), name_of_target);

}  // namespace
}  // namespace farwarp
