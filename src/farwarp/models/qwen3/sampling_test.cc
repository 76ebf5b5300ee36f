// Decoders that sample: what their tokens depend on, and what they refuse.
#include <gtest/gtest.h>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using Tokens = std::vector<std::int32_t>;

class Qwen3Sampler : public WorldTestOf<TargetKind> {
 protected:
  struct Given {
    Tokens prompt;
    Qwen3Sampling sampling;
  };
  /// What `launches` launches of `tokens` tokens choose for each of `given`.
  static std::vector<Tokens> decode(World& world, Stream stream, const std::vector<Given>& given, int most_top_k,
                                    int tokens, int launches, FleetDispatcher dispatcher = FleetDispatcher::kStatic,
                                    std::vector<float>* logits = nullptr) {
    const auto sequences = static_cast<int>(given.size());
    auto decoder = Qwen3Decoder::create_random(
        world, *qwen3_config("nano"), {.sequences = sequences, .positions = 32, .max_sms = 2, .most_top_k = most_top_k},
        1);
    EXPECT_TRUE(decoder.ok()) << decoder.status().to_string();
    const auto of_column = static_cast<std::size_t>(tokens);
    const std::size_t columns = static_cast<std::size_t>(decoder->plan().columns);
    const harness::DeviceBuffer sampled = harness::buffer_of(world.device(), columns * of_column * 4);
    const std::size_t numbers = columns * of_column * static_cast<std::size_t>(decoder->plan().config.vocabulary);
    const harness::DeviceBuffer of_logits = harness::buffer_of(world.device(), numbers * 4);
    for (int i = 0; i < sequences; ++i) {
      const Given& sequence = given[static_cast<std::size_t>(i)];
      EXPECT_TRUE(decoder->start(i, sequence.prompt, stream, sequence.sampling).ok());
    }
    std::vector<Tokens> chosen(given.size());
    for (int launch = 0; launch < launches; ++launch) {
      EXPECT_TRUE(decoder
                      ->decode({.tokens = tokens,
                                .dispatcher = dispatcher,
                                .sampled = sampled.as<std::int32_t>(),
                                .logits = of_logits.as<float>()},
                               stream)
                      .ok());
      EXPECT_TRUE(drain(world, stream).ok());
      Tokens all(columns * of_column);
      EXPECT_TRUE(sampled.download(all.data(), all.size() * 4, stream).ok());
      for (std::size_t i = 0; i < chosen.size(); ++i)
        chosen[i].insert(chosen[i].end(), all.begin() + static_cast<std::ptrdiff_t>(i * of_column),
                         all.begin() + static_cast<std::ptrdiff_t>((i + 1) * of_column));
    }
    if (logits != nullptr) {
      logits->resize(numbers);
      EXPECT_TRUE(of_logits.download(logits->data(), numbers * 4, stream).ok());
    }
    EXPECT_TRUE(decoder->close().ok());
    return chosen;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Qwen3Sampler, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Qwen3Sampler, WithoutATemperatureItsTokensAreTheGreedyOnes) {
  on_streams(1, options(), [](World& world, Stream stream) {
    const std::vector<Given> given = {{{3, 1}, {}}};
    EXPECT_EQ(decode(world, stream, given, 8, 4, 1), decode(world, stream, given, 0, 4, 1));
  });
}

/// Vectors stream. Greedy sequences beside drawn ones have the greedy decoder's logits, to the bit.
TEST_P(Qwen3Sampler, WithoutATemperatureTokensOfManySequencesAreTheGreedyOnes) {
  on_streams(1, options(), [](World& world, Stream stream) {
    std::vector<Given> given;
    for (std::int32_t i = 0; i < 11; ++i) given.push_back({{i, 3 * i + 1}, {}});
    std::vector<float> of_greedy, of_sampler, of_graph;
    const auto greedy = decode(world, stream, given, 0, 3, 1, FleetDispatcher::kStatic, &of_greedy);
    EXPECT_EQ(decode(world, stream, given, 8, 3, 1, FleetDispatcher::kStatic, &of_sampler), greedy);
    EXPECT_EQ(decode(world, stream, given, 8, 3, 1, FleetDispatcher::kGraph), greedy);
    EXPECT_EQ(of_sampler, of_greedy);
    given[4].sampling = {.temperature = 100, .top_k = 8, .seed = 3};
    auto mixed = decode(world, stream, given, 8, 3, 1);
    EXPECT_NE(mixed[4], greedy[4]);
    mixed[4] = greedy[4];
    EXPECT_EQ(mixed, greedy);
  });
}

/// Vectors stream: not on its column, not on the other sequences, not on launches, not on the dispatcher.
TEST_P(Qwen3Sampler, TokensOfManySequencesDependOnTheirOwnParametersAlone) {
  on_streams(1, options(), [](World& world, Stream stream) {
    const Given first{{3, 1}, {.temperature = 1, .top_k = 7, .top_p = 0.95f, .seed = 5}};
    Given second = first;
    second.sampling.seed = 6;
    std::vector<Given> one(9, Given{{3, 1}, {}}), other(16, second);
    one[0] = other[15] = first;
    const Tokens alone = decode(world, stream, one, 7, 4, 1)[0];
    const std::vector<Tokens> together = decode(world, stream, other, 20, 2, 2);
    EXPECT_EQ(together[15], alone);
    EXPECT_NE(together[14], alone);
    EXPECT_EQ(together[14], together[0]);
    EXPECT_EQ(decode(world, stream, one, 7, 2, 1, FleetDispatcher::kGraph)[0],
              Tokens(alone.begin(), alone.begin() + 2));
  });
}

/// Not on the other sequences, not on launches, not on the dispatcher.
TEST_P(Qwen3Sampler, ASequencesTokensDependOnItsOwnParametersAlone) {
  on_streams(1, options(), [](World& world, Stream stream) {
    const Given first{{3, 1}, {.temperature = 1, .top_k = 7, .top_p = 0.95f, .seed = 5}};
    Given second = first;
    second.sampling.seed = 6;
    const Given greedy{{3, 1}, {}};
    const Tokens alone = decode(world, stream, {first}, 7, 4, 1)[0];
    const std::vector<Tokens> together = decode(world, stream, {greedy, second, first}, 20, 2, 2);
    EXPECT_EQ(together[2], alone);
    EXPECT_NE(together[1], alone);
    EXPECT_NE(together[0], alone);
    EXPECT_EQ(decode(world, stream, {first}, 7, 2, 1, FleetDispatcher::kGraph)[0],
              Tokens(alone.begin(), alone.begin() + 2));
  });
}

TEST_P(Qwen3Sampler, WhatIsNotAllowedIsNamed) {
  on_streams(1, options(), [](World& world, Stream stream) {
    auto greedy = Qwen3Decoder::create_random(world, *qwen3_config("nano"), {.positions = 4, .max_sms = 2}, 1);
    ASSERT_TRUE(greedy.ok());
    const Tokens prompt = {1};
    EXPECT_EQ(greedy->start(0, prompt, stream, {.temperature = 1, .top_k = 2}).message(),
              "Qwen3Sampling.temperature is 1; allowed: 0 (greedy) of a decoder whose Qwen3Limits.most_top_k is 0");
    EXPECT_TRUE(greedy->close().ok());
    auto decoder =
        Qwen3Decoder::create_random(world, *qwen3_config("nano"), {.positions = 4, .max_sms = 2, .most_top_k = 8}, 1);
    ASSERT_TRUE(decoder.ok());
    const auto message = [&](const Qwen3Sampling& sampling) {
      return decoder->start(0, prompt, stream, sampling).message();
    };
    EXPECT_EQ(message({.temperature = -1}), "Qwen3Sampling.temperature is -1; allowed: 0 (greedy), 0.001 to 1000");
    EXPECT_EQ(message({.temperature = 1}),
              "Qwen3Sampling.top_k is 0; allowed: 1 to 8, Qwen3Limits.most_top_k, with a temperature");
    EXPECT_EQ(message({.temperature = 1, .top_k = 9}),
              "Qwen3Sampling.top_k is 9; allowed: 1 to 8, Qwen3Limits.most_top_k, with a temperature");
    EXPECT_EQ(message({.temperature = 1, .top_k = 8, .top_p = 0}),
              "Qwen3Sampling.top_p is 0; allowed: more than 0, up to 1");
    EXPECT_EQ(message({.temperature = 1, .top_k = 8, .top_p = 1.5f}),
              "Qwen3Sampling.top_p is 1.5; allowed: more than 0, up to 1");
    EXPECT_TRUE(decoder->start(0, prompt, stream, {.temperature = 1, .top_k = 8}).ok());
    EXPECT_TRUE(decoder->close().ok());
    const auto most = Qwen3Decoder::create_random(world, *qwen3_config("nano"), {.most_top_k = 65}, 1);
    EXPECT_EQ(most.status().message(), "Qwen3Limits.most_top_k is 65; allowed: 0 (greedy) to 64");
  });
}

}  // namespace
}  // namespace farwarp
