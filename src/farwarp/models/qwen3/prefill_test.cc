// Qwen3Decoder::prefill(): what it refuses, and a rank that does not take part.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

class Qwen3Prefill : public WorldTestOf<TargetKind> {
 protected:
  using Tokens = std::vector<std::int32_t>;
  static Tokens prompt(int tokens) {
    Tokens result;
    for (int i = 0; i < tokens; ++i) result.push_back((7 * i + 3) % 40);
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Qwen3Prefill, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Qwen3Prefill, WhatIsNotAllowedIsNamed) {
  on_streams(1, options(), [](World& world, Stream stream) {
    const Qwen3Config config = *qwen3_config("nano");
    auto decoder = Qwen3Decoder::create_random(world, config, {.positions = 16, .max_sms = 2}, 1);
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    Status status = decoder->prefill(0, prompt(3), stream);
    EXPECT_EQ(status.code(), StatusCode::kMisuse);
    EXPECT_EQ(status.message(), "Qwen3Decoder::prefill() was called, but Qwen3Limits.prefill_tokens is 0");
    EXPECT_TRUE(decoder->close().ok());
    auto other = Qwen3Decoder::create_random(world, config, {.positions = 16, .max_sms = 2, .prefill_tokens = 16}, 1);
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    EXPECT_EQ(other->prefill(1, prompt(3), stream).message(), "column is 1; allowed: 0 to 0");
    EXPECT_EQ(other->prefill(0, prompt(17), stream).message(),
              "prompt has 17 tokens; allowed: 1 to 16, Qwen3Limits.positions");
    EXPECT_EQ(other->prefill(0, {}, stream).message(), "prompt has 0 tokens; allowed: 1 to 16, Qwen3Limits.positions");
    Tokens bad = prompt(3);
    bad[2] = 40;
    EXPECT_EQ(other->prefill(0, bad, stream).message(), "prompt[2] is 40; allowed: 0 to 39");
    // A prompt that fills all positions has room for its last token.
    EXPECT_TRUE(other->prefill(0, prompt(16), stream).ok());
    const harness::DeviceBuffer sampled = harness::buffer_of(world.device(), 4);
    EXPECT_EQ(other->decode({.tokens = 2, .sampled = sampled.as<std::int32_t>()}, stream).code(),
              StatusCode::kInvalidArgument);
    EXPECT_TRUE(other->decode({.tokens = 1, .sampled = sampled.as<std::int32_t>()}, stream).ok());
    EXPECT_TRUE(drain(world, stream).ok());
    EXPECT_TRUE(other->close().ok());
    EXPECT_EQ(other->prefill(0, prompt(3), stream).code(), StatusCode::kMisuse);
    EXPECT_EQ(other->close().code(), StatusCode::kMisuse);
  });
}

/// The other rank waits for its partial sums until the deadline.
TEST_P(Qwen3Prefill, AMissingRankEndsItAtTheDeadline) {
  WorldOptions short_deadline = options();
  short_deadline.deadline = std::chrono::seconds(2);
  on_streams(2, short_deadline, [](World& world, Stream stream) {
    auto decoder = Qwen3Decoder::create_random(world, *qwen3_config("nano4"),
                                               {.positions = 16, .max_sms = 2, .prefill_tokens = 16}, 1);
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    if (world.rank() == 0) {
      EXPECT_TRUE(decoder->prefill(0, prompt(3), stream).ok());
      const Status status = drain(world, stream);
      EXPECT_EQ(status.code(), StatusCode::kDeadline) << status.to_string();
      EXPECT_TRUE(contains(status.message(), "rank 1")) << status.message();
    }
    wait_for_all_ranks(world);
    EXPECT_TRUE(decoder->close().ok());
  });
}

}  // namespace
}  // namespace farwarp
