// Decoders of more than eight sequences: sequences that end while others go on, and contexts of several key blocks,
// with each number of splits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/models/qwen3/decode/args.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr int kSequences = 9;
constexpr std::int32_t kUnchanged = -7;

std::size_t size(int value) { return static_cast<std::size_t>(value); }

class Qwen3Streams : public WorldTestOf<TargetKind> {
 protected:
  /// A decoder, with what its launches give.
  struct Decoding {
    World& world;
    Stream stream;
    Qwen3Decoder decoder;
    int tokens;  ///< of a launch
    harness::DeviceBuffer sampled, logits;

    static Decoding create(World& world, Stream stream, int tokens, const Qwen3Limits& limits,
                           const Qwen3Config& config = *qwen3_config("nano")) {
      auto decoder = Qwen3Decoder::create_random(world, config, limits, 1);
      EXPECT_TRUE(decoder.ok()) << decoder.status().to_string();
      const std::size_t of_columns = size(decoder->plan().columns) * size(tokens);
      const std::size_t of_logits = of_columns * size(decoder->plan().config.vocabulary);
      return {world,
              stream,
              std::move(*decoder),
              tokens,
              harness::buffer_of(world.device(), of_columns * 4),
              harness::buffer_of(world.device(), of_logits * 4)};
    }
    void start(int column) {
      const Status status = decoder.start(column, Tokens{column, 3 * column + 1}, stream);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    /// Each column's choices; kUnchanged where there is none.
    std::vector<Tokens> launch(std::vector<std::int32_t> end_tokens = {}) {
      const Tokens none(sampled.bytes() / 4, kUnchanged);
      EXPECT_TRUE(sampled.upload(none.data(), sampled.bytes(), stream).ok());
      Status status = decoder.decode({.tokens = tokens,
                                      .end_tokens = end_tokens,
                                      .sampled = sampled.as<std::int32_t>(),
                                      .logits = logits.as<float>()},
                                     stream);
      if (status.ok()) status = drain(world, stream);
      EXPECT_TRUE(status.ok()) << status.to_string();
      Tokens all(none.size());
      EXPECT_TRUE(sampled.download(all.data(), sampled.bytes(), stream).ok());
      std::vector<Tokens> chosen;
      for (auto at = all.begin(); at != all.end(); at += tokens) chosen.emplace_back(at, at + tokens);
      return chosen;
    }
    std::vector<float> last_logits() {
      std::vector<float> all(logits.bytes() / 4);
      EXPECT_TRUE(logits.download(all.data(), logits.bytes(), stream).ok());
      return all;
    }
    void close() { EXPECT_TRUE(decoder.close().ok()); }
  };
  void TearDown() override { unsetenv("FARWARP_EMU_MULTIPROCESSORS"); }
  /// `resolved`: splits of a decoder whose limits say 0.
  static void expect_contexts(const Qwen3Config& config, const Qwen3Limits& limits, std::initializer_list<int> splits,
                              int resolved);
  static constexpr int kFirst[] = {0, 5, 100, 126, 127, 128, 254, 300, 383};
  static std::vector<std::vector<float>> logits_of(World& world, Stream stream, const Qwen3Config& config,
                                                   const Qwen3Limits& limits, int first);
  static std::vector<std::vector<float>> logits_with_packets(World& world, Stream stream, const Qwen3Config& config,
                                                             int sequences, int max_sms);
  static void expect_near(const std::vector<std::vector<float>>& given, const std::vector<std::vector<float>>& expected,
                          const std::string& what);
  static Qwen3Limits limits(int sequences = kSequences) {
    return {.sequences = sequences, .positions = 32, .max_sms = 3};
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Qwen3Streams, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Qwen3Streams, AnEndTokenEndsItsSequenceAlone) {
  on_streams(1, options(), [](World& world, Stream stream) {
    Decoding decoding = Decoding::create(world, stream, 3, limits());
    const auto start_all = [&] {
      for (int column = 0; column < kSequences; ++column) decoding.start(column);
    };
    start_all();
    const auto first = decoding.launch(), second = decoding.launch();
    const std::int32_t end_token = first[0][1];  // the first choice is of the prompt
    const auto chosen_ever = [&](std::int32_t token) {
      return std::any_of(first.begin(), first.end(),
                         [&](const Tokens& of) { return std::count(of.begin(), of.end(), token) > 0; }) ||
             std::any_of(second.begin(), second.end(),
                         [&](const Tokens& of) { return std::count(of.begin(), of.end(), token) > 0; });
    };
    std::int32_t never = 0;
    while (chosen_ever(never)) ++never;
    Tokens ends(qwen3::kMaxEndTokens, never);  // the last one counts as the first does
    ends.back() = end_token;
    int ended = 0;
    start_all();
    const auto ending = decoding.launch({end_token}), after = decoding.launch(ends);
    for (int i = 0; i < kSequences; ++i) {
      Tokens expected = first[size(i)];
      expected.insert(expected.end(), second[size(i)].begin(), second[size(i)].end());
      const auto end = std::find(expected.begin() + 1, expected.end(), end_token);
      if (end != expected.end()) {
        ++ended;
        std::fill(end + 1, expected.end(), kUnchanged);
      }
      Tokens chosen = ending[size(i)];
      chosen.insert(chosen.end(), after[size(i)].begin(), after[size(i)].end());
      EXPECT_EQ(chosen, expected) << "sequence " << i;
    }
    EXPECT_GT(ended, 0);
    EXPECT_LT(ended, kSequences);
    decoding.close();
  });
}

/// Fewer steps than a launch could have: the next one counts on from there.
TEST_P(Qwen3Streams, ALaunchEndsWithTheLastSequence) {
  on_streams(1, options(), [](World& world, Stream stream) {
    Decoding decoding = Decoding::create(world, stream, 4, limits());
    decoding.start(8);
    const Tokens whole = decoding.launch()[8];
    decoding.start(8);
    Tokens ended = whole;
    std::fill(std::find(ended.begin() + 1, ended.end(), whole[1]) + 1, ended.end(), kUnchanged);
    EXPECT_EQ(decoding.launch({whole[1]})[8], ended);
    for (int column : {0, 8}) decoding.start(column);
    EXPECT_EQ(decoding.launch()[8], whole);
    decoding.close();
  });
}

TEST_P(Qwen3Streams, AStoppedSequenceMakesRoomForANewOne) {
  on_streams(1, options(), [](World& world, Stream stream) {
    Decoding decoding = Decoding::create(world, stream, 1, limits());
    const auto start_all = [&] {
      for (int column = 0; column < kSequences; ++column) decoding.start(column);
    };
    start_all();
    const auto first = decoding.launch(), second = decoding.launch(), third = decoding.launch();
    start_all();
    EXPECT_EQ(decoding.launch(), first);
    EXPECT_TRUE(decoding.decoder.stop(3, stream).ok());
    auto expected = second;
    expected[3] = Tokens(1, kUnchanged);
    EXPECT_EQ(decoding.launch(), expected);
    decoding.start(3);
    expected = third;
    expected[3] = first[3];
    EXPECT_EQ(decoding.launch(), expected);
    decoding.close();
  });
}

/// The logits of `sequences` contexts from `first` on, [sequence][token][vocabulary]. The keys before the first token
/// are zeros.
std::vector<std::vector<float>> Qwen3Streams::logits_of(World& world, Stream stream, const Qwen3Config& config,
                                                        const Qwen3Limits& limits, int first) {
  Decoding decoding = Decoding::create(world, stream, 2, limits, config);
  EXPECT_EQ(decoding.decoder.plan().streams, first == 0 && limits.sequences > 4);  // as expect_contexts() wants it
  for (int i = 0; i < limits.sequences; ++i)
    EXPECT_TRUE(decoding.decoder.start_with_any_keys(i, kFirst[first + i], 3 + first + i, stream).ok());
  (void)decoding.launch();
  const auto logits = decoding.last_logits();
  const std::size_t columns = size(decoding.decoder.plan().columns), vocabulary = logits.size() / columns / 2;
  decoding.close();
  std::vector<std::vector<float>> result(size(limits.sequences));
  for (std::size_t row = 0; row < 2 * columns; ++row) {
    if (row % columns >= result.size()) continue;
    const auto from = logits.begin() + static_cast<std::ptrdiff_t>(row * vocabulary);
    auto& to = result[row % columns];
    to.insert(to.end(), from, from + static_cast<std::ptrdiff_t>(vocabulary));
  }
  return result;
}

/// Those of `sequences` contexts with packets.
std::vector<std::vector<float>> Qwen3Streams::logits_with_packets(World& world, Stream stream,
                                                                  const Qwen3Config& config, int sequences,
                                                                  int max_sms) {
  std::vector<std::vector<float>> all;
  for (int first = 0; first < sequences; first += 4) {
    const int count = std::min(4, sequences - first);
    for (auto& logits :
         logits_of(world, stream, config, {.sequences = count, .positions = 400, .max_sms = max_sms}, first))
      all.push_back(std::move(logits));
  }
  return all;
}

void Qwen3Streams::expect_near(const std::vector<std::vector<float>>& given,
                               const std::vector<std::vector<float>>& expected, const std::string& what) {
  ASSERT_EQ(given.size(), expected.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    double difference = 0, square = 0;
    for (std::size_t at = 0; at < given[i].size(); ++at) {
      difference += std::pow(double{given[i][at]} - double{expected[i][at]}, 2);
      square += std::pow(double{expected[i][at]}, 2);
    }
    EXPECT_LE(difference, 1e-4 * square) << what << ", sequence " << i;  // of roundings: 1 %
  }
}

/// With packets the logits are the same but for roundings.
void Qwen3Streams::expect_contexts(const Qwen3Config& config, const Qwen3Limits& of, std::initializer_list<int> splits,
                                   int resolved) {
  on_streams(1, options(), [=](World& world, Stream stream) {
    const auto expected = logits_with_packets(world, stream, config, of.sequences, 2);
    for (const int wanted : splits) {
      Qwen3Limits limits = of;
      limits.splits = wanted;
      const auto plan = plan_qwen3(config, limits, world.device().shape());
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      EXPECT_EQ(plan->limits.splits, wanted == 0 ? resolved : wanted);
      expect_near(logits_of(world, stream, config, limits, 0), expected, std::to_string(wanted) + " splits");
    }
  });
}

/// A worker has the keys of several sequences.
TEST_P(Qwen3Streams, ContextsOfSeveralKeyBlocksAreWhole) {
  expect_contexts(*qwen3_config("nano"), {.sequences = kSequences, .positions = 400, .max_sms = 2}, {0, 1, 3}, 1);
}

/// Two warps have two heads each: eight queries, a key and a value.
TEST_P(Qwen3Streams, EightQueryHeadsOfAKvHeadAreReceived) {
  Qwen3Config config = *qwen3_config("nano");
  config.query_heads = 8;
  config.layers = 1;
  expect_contexts(config, {.sequences = kSequences, .positions = 400, .max_sms = 2}, {0, 2}, 1);
}

/// 32 workers have the keys of nine sequences, three each.
TEST_P(Qwen3Streams, WorkersShareTheKeysOfASequence) {
  setenv("FARWARP_EMU_MULTIPROCESSORS", "32", 1);
  Qwen3Config config = *qwen3_config("nano");
  config.vocabulary = 32 * 16;  // a tile of the head for each worker
  expect_contexts(config, {.sequences = kSequences, .positions = 4096, .max_sms = 32}, {0}, 3);
}

/// 16 workers have the keys of eight sequences, and all of them if they are split.
TEST_P(Qwen3Streams, WorkersShareSequencesNotColumns) {
  setenv("FARWARP_EMU_MULTIPROCESSORS", "16", 1);
  Qwen3Config config = *qwen3_config("nano");
  config.vocabulary = 16 * 16;
  const Qwen3Limits limits{.sequences = 8, .positions = 2800, .max_sms = 16, .vectors = Qwen3Vectors::kStreamed};
  expect_contexts(config, limits, {0, 1}, 2);
}

/// Two workers have eight tiles of down each, more than a worker of packets keeps the sums of from pass to pass: five
/// sequences have the kernel of 16.
TEST_P(Qwen3Streams, FewSequencesStreamWherePacketsHaveNoRoom) {
  Qwen3Config config = *qwen3_config("nano");
  config.intermediate = 21 * 256;  // a slice more than a pass has
  config.layers = 1;
  config.vocabulary = 4 * 16;  // a tile of the head for each of four workers
  on_streams(1, options(), [=](World& world, Stream stream) {
    const Qwen3Limits limits{.sequences = 5, .positions = 400, .max_sms = 2};
    EXPECT_EQ(plan_qwen3(config, limits, world.device().shape())->columns, 16);
    expect_near(logits_of(world, stream, config, limits, 0), logits_with_packets(world, stream, config, 5, 4),
                "five sequences");
  });
}

TEST_P(Qwen3Streams, WhatIsNotAllowedIsNamed) {
  on_streams(1, options(), [](World& world, Stream stream) {
    const auto refused = [&](const Qwen3Limits& of) {
      return Qwen3Decoder::create_random(world, *qwen3_config("nano"), of, 1).status().message();
    };
    EXPECT_EQ(refused({.sequences = 65, .positions = 4, .max_sms = 2}),
              "Qwen3Limits.sequences is 65; allowed: 1 to 64");
    if (GetParam() == TargetKind::kEmuGfx942) {
      EXPECT_TRUE(contains(refused({.sequences = 33, .positions = 4, .max_sms = 2}), "Qwen3Limits.sequences is 33"));
    }
    Decoding decoding = Decoding::create(world, stream, 1, limits());
    decoding.start(8);
    if (GetParam() == TargetKind::kEmuSm90) {
      const Status status = decoding.decoder.decode(
          {.dispatcher = FleetDispatcher::kGang, .sampled = decoding.sampled.as<std::int32_t>()}, stream);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_TRUE(contains(status.message(), "Qwen3Call.dispatcher is gang")) << status.message();
    }
    EXPECT_EQ(decoding.decoder.start(9, Tokens{1}, stream).message(), "column is 9; allowed: 0 to 8");
    decoding.close();
  });
}

}  // namespace
}  // namespace farwarp
