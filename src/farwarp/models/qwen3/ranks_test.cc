// Several ranks that decode together: what happens when one of them does not.
#include <gtest/gtest.h>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

class Qwen3Ranks : public WorldTestOf<TargetKind> {
 protected:
  void expect_missing_rank_named(FleetDispatcher dispatcher, int sequences = 1);
};
INSTANTIATE_TEST_SUITE_P(Targets, Qwen3Ranks, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// The other ranks wait for its partial sums until the deadline. Then all decode together.
void Qwen3Ranks::expect_missing_rank_named(FleetDispatcher dispatcher, int sequences) {
  constexpr int kMissing = 2;
  WorldOptions short_deadline = options();
  short_deadline.deadline = std::chrono::seconds(2);
  on_streams(4, short_deadline, [dispatcher, sequences](World& world, Stream stream) {
    const Qwen3Limits limits{.sequences = sequences, .positions = 16, .max_sms = 2};
    auto decoder = Qwen3Decoder::create_random(world, *qwen3_config("nano4"), limits, 1);
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    const harness::DeviceBuffer sampled =
        harness::buffer_of(world.device(), static_cast<std::size_t>(decoder->plan().columns) * 8);
    const auto start = [&](Qwen3Decoder& one) {
      for (int i = 0; i < sequences; ++i) EXPECT_TRUE(one.start(i, std::vector<std::int32_t>{5 + i}, stream).ok());
    };
    start(*decoder);
    if (world.rank() != kMissing) {
      ASSERT_TRUE(
          decoder->decode({.tokens = 2, .dispatcher = dispatcher, .sampled = sampled.as<std::int32_t>()}, stream).ok());
      const Status status = drain(world, stream);
      EXPECT_TRUE(status.code() == StatusCode::kDeadline || status.code() == StatusCode::kAborted)
          << status.to_string();
      if (status.code() == StatusCode::kDeadline) {
        EXPECT_TRUE(contains(status.message(), "the partial sums of a rank")) << status.message();
        EXPECT_TRUE(contains(status.message(), "rank 2")) << status.message();
      }
    }
    ASSERT_TRUE(world.recover({stream}).ok());
    // The call that was given up has left counters of its steps somewhere. If the next one went on from there, steps
    // would begin early, and read what nothing orders.
    wait_for_all_ranks(world);
    if (world.rank() == 0) emu::Machine::instance().set_schedule({.seed = 3, .adversarial = true});  // a new report
    wait_for_all_ranks(world);
    const auto tokens_of = [&](Qwen3Decoder& one) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(2 * sequences));
      start(one);
      EXPECT_TRUE(
          one.decode({.tokens = 2, .dispatcher = dispatcher, .sampled = sampled.as<std::int32_t>()}, stream).ok());
      const Status status = drain(world, stream);
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(sampled.download(tokens.data(), tokens.size() * 4, stream).ok());
      return tokens;
    };
    const auto tokens = tokens_of(*decoder);
    wait_for_all_ranks(world);
    EXPECT_EQ(emu::Machine::instance().report().race, "");
    EXPECT_TRUE(decoder->close().ok());
    auto fresh = Qwen3Decoder::create_random(world, *qwen3_config("nano4"), limits, 1);
    ASSERT_TRUE(fresh.ok()) << fresh.status().to_string();
    EXPECT_EQ(tokens, tokens_of(*fresh));
    EXPECT_TRUE(fresh->close().ok());
  });
}

TEST_P(Qwen3Ranks, ARankThatDoesNotDecodeIsNamed) { expect_missing_rank_named(FleetDispatcher::kStatic); }

/// Workers that wait for a step outlast those that wait for the rank.
TEST_P(Qwen3Ranks, WithStreamedVectorsARankThatDoesNotDecodeIsNamed) {
  expect_missing_rank_named(FleetDispatcher::kStatic, 9);
}

/// The same. Hopper has no gang.
TEST_P(Qwen3Ranks, GangNamesARankThatDoesNotDecode) {
  if (GetParam() == TargetKind::kEmuGfx942) {
    expect_missing_rank_named(FleetDispatcher::kGang);
    return;
  }
  on_streams(1, options(), [](World& world, Stream stream) {
    auto decoder = Qwen3Decoder::create_random(world, *qwen3_config("nano"), {.positions = 16, .max_sms = 2}, 1);
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    const Status status = decoder->decode({.dispatcher = FleetDispatcher::kGang}, stream);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(contains(status.message(), "Qwen3Call.dispatcher is gang; allowed")) << status.message();
    EXPECT_TRUE(decoder->close().ok());
  });
}

/// A rank with other limits would wait for packets that its peers never send.
TEST_P(Qwen3Ranks, RanksWithOtherLimitsAreRefused) {
  on_streams(2, options(), [](World& world, Stream) {
    const auto decoder =
        Qwen3Decoder::create_random(world, *qwen3_config("nano4"), {.positions = 16, .max_sms = 2 + world.rank()}, 1);
    EXPECT_EQ(decoder.status().code(), StatusCode::kMismatch) << decoder.status().to_string();
  });
}

}  // namespace
}  // namespace farwarp
