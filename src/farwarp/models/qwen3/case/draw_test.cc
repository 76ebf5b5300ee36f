// Draws: the random numbers, the tokens that are drawn, and how often.
#include "farwarp/models/qwen3/case/draw_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "farwarp/models/qwen3/case/draw_oracle.h"
#include "farwarp/models/qwen3/decode/philox.h"
#include "farwarp/runtime/device.h"
#include "farwarp/runtime/device_memory.h"

namespace farwarp::qwen3 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The known answers of Random123 (kat_vectors, philox4x32, 10 rounds).
TEST(Philox, GivesTheKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{0x299f31d0a4093822}}) {
    for (const std::uint32_t position : {0u, 1u, 123456u})
      EXPECT_EQ(oracle_random(seed, position), philox4x32_10({position, 0, 0, 0}, seed)[0]);
  }
}

class Draws : public testing::TestWithParam<TargetKind> {
 protected:
  void SetUp() override {
    auto device = Device::open(GetParam(), 0);
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    device_ = *device;
    auto stream = device_->create_stream();
    ASSERT_TRUE(stream.ok());
    stream_ = *stream;
  }
  void TearDown() override { device_->destroy_stream(stream_); }

  std::vector<std::int32_t> draw(const std::vector<float>& logits, const Qwen3Sampling& sampling, int count) {
    auto input = DeviceMemory::create(*device_, logits.size() * 4);
    auto output = DeviceMemory::create(*device_, static_cast<std::size_t>(count) * 4);
    auto kernel = device_->kernel("qwen3_draw_test");
    EXPECT_TRUE(input.ok() && output.ok() && kernel.ok());
    EXPECT_TRUE(device_->copy_in(input->get(), logits.data(), input->bytes(), stream_).ok());
    const double scale = 1.4426950408889634 / static_cast<double>(sampling.temperature);
    const DrawTestArgs args{input->as<const float>(),
                            static_cast<std::int32_t>(logits.size()),
                            sampling.top_k,
                            count,
                            {sampling.seed, sampling.temperature == 0 ? 0 : static_cast<float>(scale), sampling.top_p},
                            output->as<std::int32_t>()};
    EXPECT_TRUE(launch(*device_, *kernel, {1, 64, 0}, args, stream_).ok());
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count), -2);
    EXPECT_TRUE(device_->synchronize(stream_, 60'000'000'000).ok());
    EXPECT_TRUE(device_->copy_out(tokens.data(), output->get(), output->bytes(), stream_).ok());
    return tokens;
  }
  /// Each token must be one that the oracle allows, and nearly always the one that it gives.
  void expect_right(const std::vector<float>& logits, const Qwen3Sampling& sampling, int count) {
    const std::vector<std::int32_t> tokens = draw(logits, sampling, count);
    int others = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto allowed = oracle_draws(logits, sampling, static_cast<std::uint32_t>(i));
      EXPECT_TRUE(std::find(allowed.begin(), allowed.end(), tokens[i]) != allowed.end())
          << "position " << i << ": " << tokens[i] << ", not " << allowed[0];
      others += tokens[i] != allowed[0];
    }
    EXPECT_LE(others, 1);
  }

  std::shared_ptr<Device> device_;
  Stream stream_;
};
INSTANTIATE_TEST_SUITE_P(Targets, Draws, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// Logits with ties, of which some are worse than the worst that are kept.
std::vector<float> some_logits(int count) {
  std::vector<float> logits;
  for (int i = 0; i < count; ++i) logits.push_back(static_cast<float>((i * 37) % 101 / 4) * 0.5f);
  return logits;
}

TEST_P(Draws, AreThoseOfTheOracle) {
  const std::vector<float> logits = some_logits(150);
  for (const int top_k : {1, 2, 20, 33, 64}) {
    for (const float top_p : {1.0f, 0.7f, 0.01f})
      expect_right(logits, {.temperature = 1.5f, .top_k = top_k, .top_p = top_p, .seed = 77}, 40);
  }
  expect_right(some_logits(7), {.temperature = 100, .top_k = 50, .top_p = 0.9f, .seed = 1}, 40);
  expect_right(logits, {.temperature = 0.001f, .top_k = 64, .seed = 2}, 5);
}

TEST_P(Draws, InfiniteLogitsAndNone) {
  const Qwen3Sampling sampling{.temperature = 1, .top_k = 4, .seed = 3};
  expect_right({1, kInfinity, 2, kInfinity, 0}, sampling, 20);
  expect_right({-kInfinity, -kInfinity, 2, -kInfinity, 1}, sampling, 20);
  expect_right({-kInfinity, -kInfinity, -kInfinity}, sampling, 20);
}

TEST_P(Draws, FiniteLogitsOfAnySize) {
  for (const float temperature : {0.001f, 1.0f, 1000.0f}) {
    const Qwen3Sampling sampling{.temperature = temperature, .top_k = 5, .top_p = 0.99f, .seed = 3};
    expect_right({3e38f, -3e38f, 0, 3e38f, -3e38f}, sampling, 20);
    expect_right({0x1p24f, 0x1p24f - 1, 0x1p24f - 2, -0x1p24f}, sampling, 20);
    expect_right({-0x1p30f, -0x1p30f - 128, -0x1p30f}, sampling, 20);
  }
  for (const float temperature : {0.0f, 1.0f}) {
    const auto tokens = draw({1, 2, std::nanf(""), 5}, {.temperature = temperature, .top_k = 2}, 1);
    EXPECT_EQ(tokens[0], -1);  // Candidate::kNotANumber
  }
}

TEST_P(Draws, WithoutATemperatureTheFirstBestTokenIsTaken) {
  EXPECT_EQ(draw({1, 5, 2, 5, 0}, {.temperature = 0, .top_k = 1}, 1)[0], 1);
}

/// Chi-squared with 7 degrees of freedom: above 24.3 in one of a thousand cases. The draws are the same in each run.
TEST_P(Draws, HaveTheRightFrequencies) {
  constexpr int kDraws = 3000;
  const std::vector<float> logits = {0.3f, 1.0f, -0.5f, 2.0f, 0.9f, 1.7f, 0.0f, 1.2f, -9.0f, 0.5f, -1.0f, -2.0f};
  const Qwen3Sampling sampling{.temperature = 1.3f, .top_k = 10, .top_p = 0.9f, .seed = 20261126};
  std::vector<std::int32_t> order;
  const std::vector<double> probabilities = oracle_probabilities(logits, sampling, order);
  const std::vector<std::int32_t> tokens = draw(logits, sampling, kDraws);
  double statistic = 0;
  int kept = 0, counted = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto count = std::count(tokens.begin(), tokens.end(), order[i]);
    counted += static_cast<int>(count);
    if (probabilities[i] == 0) {
      EXPECT_EQ(count, 0) << order[i];
      continue;
    }
    ++kept;
    const double expected = probabilities[i] * kDraws, off = static_cast<double>(count) - expected;
    statistic += off * off / expected;
  }
  EXPECT_EQ(kept, 8);
  EXPECT_EQ(counted, kDraws);
  EXPECT_LT(statistic, 24.3);
  EXPECT_GT(statistic, 0.6);  // below in one of a thousand: draws are not spread evenly on purpose
}

}  // namespace
}  // namespace farwarp::qwen3
