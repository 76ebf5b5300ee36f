// The edge cases of the host API on every target that this machine has, and the order of the sum, to the bit.
#include "farwarp/ops/parallel_gemm/gemm_rs/gemm_rs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::bf16_buffer;
using harness::bits_in;
using harness::DeviceBuffer;

constexpr int kRanks = 3;
constexpr int kN = 72, kK = 8 * kRanks;
constexpr int kFewRows = 30;   ///< on Hopper: swap_ab, multipliers send words
constexpr int kManyRows = 90;  ///< on Hopper: store warps send words

/// A rank's term of a column: a large number, its negative, and a small number. Added in the order of the ranks, only
/// the small number is left; in another order it is lost.
Bf16 partial(int rank, int column) {
  const float mantissa = 1.0f + static_cast<float>(column) / 128.0f;
  const float values[kRanks] = {0x1p20f * mantissa, -0x1p20f * mantissa, 0x1p-10f * mantissa};
  return bf16_from(values[rank]);
}

/// x is 1 in column 0 and 0 elsewhere, w[n, 0] is partial(rank, n): so partial() is each row of the rank's product.
class Operands {
 public:
  Operands(World& world, int m, Stream stream)
      : x(bf16_buffer(world.device(), stream, m * 8, 0)),
        w(bf16_buffer(world.device(), stream, kN * 8, 0)),
        y(bf16_buffer(world.device(), stream, m / kRanks * kN, 0)) {
    std::vector<std::uint16_t> ones(m * 8, 0), numbers(kN * 8, 0);
    for (int row = 0; row < m; ++row) ones[row * 8] = bf16_from(1).bits;
    for (int column = 0; column < kN; ++column) numbers[column * 8] = partial(world.rank(), column).bits;
    EXPECT_TRUE(x.upload(ones.data(), ones.size() * 2, stream).ok());
    EXPECT_TRUE(w.upload(numbers.data(), numbers.size() * 2, stream).ok());
  }

  DeviceBuffer x, w, y;
};

/// The sum of a column in this order of the ranks.
Bf16 sum_of(int column, std::initializer_list<int> order) {
  float sum = 0;
  for (const int rank : order) sum += float_from(partial(rank, column));
  return bf16_from(sum);
}

struct Rank {
  World& world;
  GemmReduceScatter op;
  Stream stream;
  Operands operands;

  Status launch(Stream on) { return op(operands.x.get(), operands.w.get(), nullptr, operands.y.get(), on); }
  void expect_right() {
    ASSERT_TRUE(operands.y.poison(stream).ok());
    ASSERT_TRUE(launch(stream).ok());
    const Status status = drain(world, stream);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const auto bits = bits_in(operands.y, stream);
    for (std::size_t i = 0; i < bits.size(); ++i)
      ASSERT_EQ(bits[i], sum_of(static_cast<int>(i % kN), {0, 1, 2}).bits) << i / kN << ", " << i % kN;
  }
};

class GemmReduceScatterApi : public WorldTestBase {
 protected:
  /// `boxes`: asks for boxes with flags where words would be the plan's choice.
  static void on_ranks_of(const std::function<void(Rank&)>& body, int m = kFewRows,
                          const WorldOptions& asked = options(), bool boxes = false) {
    on_streams(kRanks, asked, [&](World& world, Stream stream) {
      ParallelGemmDesc desc{.m = m, .n = kN, .k = kK, .max_sms = 2};
      if (boxes && world.device().shape().traits.matrix_unit == MatrixUnit::kWgmma)
        desc.exchange = ParallelGemmExchange::kBoxes;
      auto op = GemmReduceScatter::create(world, desc);
      ASSERT_TRUE(op.ok()) << op.status().to_string();
      Rank rank{world, std::move(*op), stream, Operands(world, m, stream)};
      body(rank);
      EXPECT_TRUE(rank.op.close().ok());
      EXPECT_EQ(rank.launch(stream).code(), StatusCode::kMisuse);
    });
  }
};

// Rounded partial sums, added in fp32 in the order of the ranks, rounded once: no tolerance.
TEST_P(GemmReduceScatterApi, SumsInTheOrderOfTheRanksToTheBit) {
  for (int column = 0; column < kN; ++column) {
    ASSERT_NE(sum_of(column, {0, 1, 2}).bits, sum_of(column, {2, 1, 0}).bits) << "the order would not be noticed";
    ASSERT_NE(sum_of(column, {0, 1, 2}).bits, sum_of(column, {1, 2, 0}).bits);
  }
  for (const int m : {kFewRows, kManyRows}) {
    for (const bool boxes : {false, true}) {
      on_ranks_of(
          [](Rank& rank) {
            for (int call = 0; call < 3; ++call) rank.expect_right();
          },
          m, options(), boxes);
    }
  }
}

// Memory of all ones means that no word has arrived. Sums that are NaNs of all ones must arrive all the same, as NaNs.
// Then other sums are sent to the same places.
TEST_P(GemmReduceScatterApi, SumsOfAllOnesComeAsWords) {
  for (const int m : {kFewRows, kManyRows}) {
    on_ranks_of(
        [](Rank& rank) {
          const std::size_t weights = std::size_t{kN} * 8;
          const std::vector<std::uint16_t> ones(weights, 0xffff);
          std::vector<std::uint16_t> before(weights);
          for (int call = 0; call < 4; ++call) {
            Operands& operands = rank.operands;
            ASSERT_TRUE(operands.w.download(before.data(), weights * 2, rank.stream).ok());
            ASSERT_TRUE(operands.w.upload(ones.data(), weights * 2, rank.stream).ok());
            ASSERT_TRUE(rank.launch(rank.stream).ok());
            const Status status = drain(rank.world, rank.stream);
            ASSERT_TRUE(status.ok()) << status.to_string();
            for (const std::uint16_t bits : bits_in(operands.y, rank.stream))
              ASSERT_TRUE(std::isnan(float_from(Bf16{bits})));
            ASSERT_TRUE(operands.w.upload(before.data(), weights * 2, rank.stream).ok());
            rank.expect_right();
          }
        },
        m);
  }
}

TEST_P(GemmReduceScatterApi, RefusesPointersInWords) {
  on_ranks_of([](Rank& rank) {
    Operands& operands = rank.operands;
    const auto call = [&](const void* x, const void* w, const void* bias, void* y) {
      return rank.op(x, w, bias, y, rank.stream).message();
    };
    void* const x = operands.x.get();
    void* const w = operands.w.get();
    void* const y = operands.y.get();
    EXPECT_EQ(call(nullptr, w, nullptr, y), "x is null; allowed: a device pointer");
    EXPECT_EQ(call(x, nullptr, nullptr, y), "w is null; allowed: a device pointer");
    EXPECT_TRUE(contains(call(x, w, nullptr, operands.y.as<std::byte>() + 8), "allowed: a multiple of 16"));
    EXPECT_EQ(call(x, w, x, y), "bias is given; allowed: null, as ParallelGemmDesc.has_bias is false");
    rank.expect_right();
  });
}

TEST_P(GemmReduceScatterApi, RanksMustAgreeOnTheShape) {
  on_worlds(2, options(), [](World& world) {
    const auto op = GemmReduceScatter::create(world, {.m = 8, .n = 64 + 8 * world.rank(), .k = 64});
    EXPECT_EQ(op.status().code(), StatusCode::kMismatch) << op.status().to_string();
    const auto wrong = GemmReduceScatter::create(world, {.m = 8, .n = 60, .k = 64});
    EXPECT_EQ(wrong.status().message(), "ParallelGemmDesc.n is 60; allowed: a multiple of 8 up to 16777216");
    const auto large = GemmReduceScatter::create(world, {.m = 4096, .n = 4096, .k = 64});
    EXPECT_EQ(large.status().code(), StatusCode::kOutOfMemory) << large.status().to_string();
    auto again = GemmReduceScatter::create(world, {.m = 8, .n = 64, .k = 64});
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_TRUE(again->close().ok());
  });
}

TEST_P(GemmReduceScatterApi, ADroppedTileIsMissing) {
  const auto drop = [](Rank& rank) {
    if (rank.world.rank() == 1) rank.op.inject({.drop_put = 1});
    ASSERT_TRUE(rank.launch(rank.stream).ok());
    ASSERT_TRUE(drain(rank.world, rank.stream).ok());
    // The inbox was zeroed: where rank 1's tile is missing, zeros are added.
    EXPECT_EQ(bits_in(rank.operands.y, rank.stream)[0], sum_of(0, {0, 2}).bits);
    rank.op.inject({});
    wait_for_all_ranks(rank.world);
    rank.expect_right();
  };
  on_ranks_of(drop, kManyRows, options(), true);
}

// A dropped tile of words ends the call at its deadline, because no flag replaces the words. The next call is right
// after recover().
TEST_P(GemmReduceScatterApi, ADroppedTileOfWordsEndsTheCall) {
  WorldOptions asked = options();
  asked.deadline = std::chrono::milliseconds(300);
  const auto drop = [](Rank& rank) {
    if (rank.op.plan().word_inbox.rows == 0) return;
    for (int time = 0; time < 2; ++time) {
      if (rank.world.rank() == 1) rank.op.inject({.drop_put = 1});
      ASSERT_TRUE(rank.launch(rank.stream).ok());
      const StatusCode code = drain(rank.world, rank.stream).code();
      EXPECT_TRUE(code == StatusCode::kDeadline || code == StatusCode::kAborted) << static_cast<int>(code);
      rank.op.inject({});
      ASSERT_TRUE(rank.world.recover({rank.stream}).ok());
      for (int call = 0; call < 3; ++call) rank.expect_right();
    }
  };
  for (const int m : {kFewRows, kManyRows}) on_ranks_of(drop, m, asked);
}

TEST_P(GemmReduceScatterApi, AnAbortedWorldSendsNothingUntilItRecovers) {
  on_ranks_of([](Rank& rank) { expect_aborted_until_recovered(rank); });
}

// Two streams at once: one of the calls finds the operator busy, unless the other one has ended before.
TEST_P(GemmReduceScatterApi, CallsInTwoStreamsAreFoundOut) {
  if (is_real()) GTEST_SKIP() << "whether they meet is the device's choice";
  int found = 0;
  on_ranks_of([&found](Rank& rank) {
    TwoStreams seen;
    expect_two_streams_end(rank, seen);
    if (rank.world.rank() == 0 && seen.told) ++found;
  });
  EXPECT_EQ(found, 1);
}

INSTANTIATE_TEST_SUITE_P(Targets, GemmReduceScatterApi, ::testing::ValuesIn(kAllTargets), name_of_target);

}  // namespace
}  // namespace farwarp
