// A decoder whose call has been given up by workers at different steps: the next call must not read what this one has
// stored.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

constexpr int kSequences = 9;  // streamed vectors

class Qwen3Recovery : public WorldTestOf<TargetKind> {
 protected:
  struct Outcome {
    Status status;
    std::uint64_t nanoseconds = 0;
    std::vector<std::int32_t> tokens;
  };
  /// A token of all sequences. The emulator's fast schedule takes about twice its virtual time of an adversarial one.
  static Outcome decode(World& world, Stream stream, Qwen3Decoder& decoder, std::uint64_t seed, bool adversarial) {
    emu::Machine& machine = emu::Machine::instance();
    machine.set_schedule({.seed = seed, .adversarial = adversarial});
    const harness::DeviceBuffer sampled = harness::buffer_of(world.device(), kSequences * 4);
    for (int i = 0; i < kSequences; ++i) EXPECT_TRUE(decoder.start(i, std::vector<std::int32_t>{5 + i}, stream).ok());
    const std::uint64_t begin = machine.nanoseconds();
    EXPECT_TRUE(decoder.decode({.sampled = sampled.as<std::int32_t>()}, stream).ok());
    Outcome outcome{drain(world, stream), machine.nanoseconds() - begin, std::vector<std::int32_t>(kSequences)};
    EXPECT_TRUE(sampled.download(outcome.tokens.data(), sampled.bytes(), stream).ok());
    return outcome;
  }
  static Result<Qwen3Decoder> create(World& world) {
    Qwen3Config config = *qwen3_config("nano");
    config.layers *= 3;  // several milliseconds, which are a deadline's unit
    return Qwen3Decoder::create_random(world, config, {.sequences = kSequences, .positions = 16, .max_sms = 2}, 1);
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Qwen3Recovery, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// Where there is a loading thread, a worker whose wait for it expires ends without counting its further steps.
TEST_P(Qwen3Recovery, WorkersThatEndAtDifferentStepsLeaveNoCounts) {
  Outcome fast, expected;
  on_streams(1, options(), [&](World& world, Stream stream) {
    auto decoder = create(world);
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    fast = decode(world, stream, *decoder, 1, false);
    expected = decode(world, stream, *decoder, 1, true);
    ASSERT_TRUE(fast.status.ok() && expected.status.ok());
    EXPECT_TRUE(decoder->close().ok());
  });
  WorldOptions short_deadline = options();  // shorter than a call under the fast schedule
  short_deadline.deadline = std::chrono::milliseconds(fast.nanoseconds / 1'000'000);
  ASSERT_LT(expected.nanoseconds, fast.nanoseconds / 1'000'000 * 1'000'000) << "the next call has to be in time";
  int given_up = 0, right = 0;
  on_streams(1, short_deadline, [&](World& world, Stream stream) {
    auto decoder = create(world);
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      if (decode(world, stream, *decoder, seed, false).status.ok()) continue;
      ++given_up;
      ASSERT_TRUE(world.recover({stream}).ok());
      const Outcome next = decode(world, stream, *decoder, seed, true);
      const std::string race = emu::Machine::instance().report().race;
      if (next.status.code() == StatusCode::kDeadline) {
        ASSERT_TRUE(world.recover({stream}).ok());
        continue;
      }
      EXPECT_TRUE(next.status.ok()) << next.status.to_string();
      EXPECT_EQ(next.tokens, expected.tokens) << "seed " << seed;
      EXPECT_EQ(race, "") << "seed " << seed;
      ++right;
    }
    EXPECT_TRUE(decoder->close().ok());
  });
  EXPECT_GE(given_up, 2);
  EXPECT_GE(right, 2);
}

}  // namespace
}  // namespace farwarp
