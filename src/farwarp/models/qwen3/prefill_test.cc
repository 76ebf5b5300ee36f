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
    ASSERT_TRUE(decoder->start(0, prompt(3), stream).ok());
    const Status status = decoder->prefill(0, stream);
    EXPECT_EQ(status.code(), StatusCode::kMisuse);
    EXPECT_EQ(status.message(), "Qwen3Decoder::prefill() was called, but Qwen3Limits.prefill_tokens is 0");
    EXPECT_TRUE(decoder->close().ok());
    auto other = Qwen3Decoder::create_random(world, config, {.positions = 16, .max_sms = 2, .prefill_tokens = 16}, 1);
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    EXPECT_EQ(other->prefill(1, stream).message(), "column is 1; allowed: 0 to 0");
    EXPECT_EQ(other->prefill(0, stream).message(),
              "Qwen3Decoder::prefill() of column 0 has no sequence: call start() first");
    // A prompt that fills all positions has room for its last token.
    ASSERT_TRUE(other->start(0, prompt(16), stream).ok());
    EXPECT_TRUE(other->prefill(0, stream).ok());
    const harness::DeviceBuffer sampled = harness::buffer_of(world.device(), 4);
    EXPECT_EQ(other->decode({.tokens = 2, .sampled = sampled.as<std::int32_t>()}, stream).code(),
              StatusCode::kInvalidArgument);
    EXPECT_TRUE(other->decode({.tokens = 1, .sampled = sampled.as<std::int32_t>()}, stream).ok());
    EXPECT_TRUE(drain(world, stream).ok());
    EXPECT_TRUE(other->close().ok());
    EXPECT_EQ(other->prefill(0, stream).code(), StatusCode::kMisuse);
    EXPECT_EQ(other->close().code(), StatusCode::kMisuse);
  });
}

/// A sequence can be prefilled again: it goes on with its prompt's last token, and with the same bits.
TEST_P(Qwen3Prefill, AnotherPrefillBeginsAgain) {
  on_streams(1, options(), [](World& world, Stream stream) {
    auto decoder = Qwen3Decoder::create_random(world, *qwen3_config("nano"),
                                               {.positions = 32, .max_sms = 2, .prefill_tokens = 16}, 1);
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    const harness::DeviceBuffer sampled = harness::buffer_of(world.device(), 4);
    const harness::DeviceBuffer logits = harness::buffer_of(world.device(), 40 * 4);
    for (const int tokens : {1, 18}) {
      ASSERT_TRUE(decoder->start(0, prompt(tokens), stream).ok());
      std::int32_t choices[2] = {-1, -1};
      std::vector<float> numbers[2] = {std::vector<float>(40), std::vector<float>(40)};
      for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(decoder->prefill(0, stream).ok());
        const Qwen3Call call{.tokens = 1, .sampled = sampled.as<std::int32_t>(), .logits = logits.as<float>()};
        ASSERT_TRUE(decoder->decode(call, stream).ok());
        ASSERT_TRUE(drain(world, stream).ok());
        ASSERT_TRUE(sampled.download(&choices[i], 4, stream).ok());
        ASSERT_TRUE(logits.download(numbers[i].data(), 40 * 4, stream).ok());
      }
      EXPECT_EQ(choices[0], choices[1]) << tokens;
      EXPECT_EQ(numbers[0], numbers[1]) << tokens;
    }
    EXPECT_TRUE(decoder->close().ok());
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
      ASSERT_TRUE(decoder->start(0, prompt(3), stream).ok());
      EXPECT_TRUE(decoder->prefill(0, stream).ok());
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
