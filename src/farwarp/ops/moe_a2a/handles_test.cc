// Handles: a combine takes any of them, any number of times, and gives the bits of an operator without handles. On both
// emulated targets, in both modes, for each layout.
#include <gtest/gtest.h>

#include <random>
#include <tuple>
#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/ops/moe_a2a/moe_a2a.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::bits_in;
using harness::buffer_of;
using harness::DeviceBuffer;

constexpr int kRanks = 3, kExperts = 7, kTopK = 3, kHidden = 512, kTokens = 10, kCalls = 3;

const char* name_of_layout(MoeLayout layout) {
  return layout == MoeLayout::kRows ? "rows" : layout == MoeLayout::kMasked ? "masked" : "expert_major";
}

class Handles : public WorldTestOf<std::tuple<TargetKind, MoeMode, MoeLayout>> {};

INSTANTIATE_TEST_SUITE_P(Targets, Handles,
                         ::testing::Combine(::testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                                            ::testing::Values(MoeMode::kWords, MoeMode::kBulk),
                                            ::testing::Values(MoeLayout::kExpertMajor, MoeLayout::kMasked,
                                                              MoeLayout::kRows)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  name_of(std::get<1>(info.param)) + "_" + name_of_layout(std::get<2>(info.param));
                         });

/// A call of one rank: what it sends, and room for what it receives.
struct Sent {
  int tokens;
  DeviceBuffer x, indices, weights, received, counts, offsets, entries, entry_weights, kept, out, sums;
  std::vector<float> sent_weights;

  Sent(World& world, Stream stream, const MoeAllToAllPlan& plan, int call)
      : tokens(kTokens - (world.rank() + call) % 3) {
    std::mt19937 random(static_cast<unsigned>(10 * call + world.rank()));
    Device& device = world.device();
    const auto upload = [&](const auto& values) {
      DeviceBuffer buffer = buffer_of(device, values.size() * sizeof(values[0]));
      EXPECT_TRUE(buffer.upload(values.data(), buffer.bytes(), stream).ok());
      return buffer;
    };
    std::vector<std::uint16_t> numbers(static_cast<std::size_t>(tokens) * kHidden);
    for (auto& number : numbers) number = bf16_from(static_cast<float>(random() % 17) - 8).bits;
    std::vector<std::int32_t> experts(static_cast<std::size_t>(tokens) * kTopK);
    for (auto& expert : experts) expert = static_cast<std::int32_t>(random() % (kExperts + 1)) - 1;
    sent_weights.resize(experts.size());
    for (auto& weight : sent_weights) weight = static_cast<float>(random() % 1000) / 999;
    x = upload(numbers), indices = upload(experts), weights = upload(sent_weights);
    const auto rows = static_cast<std::size_t>(plan.recv_rows);
    received = buffer_of(device, rows * kHidden * 2);
    const std::vector<std::uint16_t> zeros(rows * kHidden, 0);  // rows that nobody sends
    EXPECT_TRUE(received.upload(zeros.data(), received.bytes(), stream).ok());
    counts = buffer_of(device, kExperts * 4), offsets = buffer_of(device, (kExperts + kRanks + 1) * 4);
    entries = buffer_of(device, rows * kTopK * 4), entry_weights = buffer_of(device, rows * kTopK * 4);
    kept = buffer_of(device, static_cast<std::size_t>(std::max<std::int64_t>(plan.handle_bytes, 16)));
    out = buffer_of(device, static_cast<std::size_t>(tokens) * kHidden * 2);
    sums = buffer_of(device, static_cast<std::size_t>(tokens) * kTopK * 4);
  }
  MoeTokens given() const {
    return {.x = x.get(), .topk_indices = indices.get(), .topk_weights = weights.as<float>(), .tokens = tokens};
  }
  MoeReceived room(bool rows, bool handles) const {
    MoeReceived result{.x = received.get(), .counts = counts.as<std::int32_t>(), .offsets = offsets.as<std::int32_t>()};
    if (rows) result.topk_indices = entries.get(), result.topk_weights = entry_weights.as<float>();
    if (handles) result.handle = kept.get();
    return result;
  }
  MoeHandle handle() const { return {.memory = kept.get(), .topk_indices = indices.get(), .tokens = tokens}; }
};

/// One rank: calls of an operator without handles, then the same calls by handles.
void combine_by_handles(World& world, Stream stream, MoeAllToAllDesc desc) {
  const bool rows = desc.layout == MoeLayout::kRows;
  auto plain = MoeAllToAll::create(world, desc);
  desc.handles = true;
  auto op = MoeAllToAll::create(world, desc);
  ASSERT_TRUE(plain.ok() && op.ok()) << op.status().to_string();
  std::vector<Sent> calls;
  std::vector<std::vector<std::uint16_t>> expected;
  for (int call = 0; call < kCalls; ++call) {
    Sent& sent = calls.emplace_back(world, stream, op->plan(), call);
    ASSERT_TRUE(plain->dispatch(sent.given(), sent.room(rows, false), stream).ok());
    ASSERT_TRUE(plain->combine(sent.received.get(), sent.out.get(), stream).ok());
    expected.push_back(bits_in(sent.out, stream));
    if (call == 1) {
      ASSERT_TRUE(op->dispatch_send(sent.given(), stream).ok());
      if (rows) {
        const Status early =
            op->return_row_weights(sent.entry_weights.as<float>(), sent.sums.as<float>(), stream, sent.handle());
        EXPECT_EQ(early.code(), StatusCode::kMisuse);
        EXPECT_EQ(early.message(), "combine, combine_send or return_row_weights was called; next comes dispatch_recv");
      } else {
        const MoeHandle handle = sent.handle();
        const Status early = op->combine(sent.received.get(), sent.out.get(), stream, nullptr, &handle);
        EXPECT_EQ(early.code(), StatusCode::kMisuse);
        EXPECT_EQ(early.message(), "combine or combine_send was called; next comes dispatch_recv");
      }
      ASSERT_TRUE(op->dispatch_recv(sent.room(rows, true), stream).ok());
    } else {
      ASSERT_TRUE(op->dispatch(sent.given(), sent.room(rows, true), stream).ok());
    }
  }
  for (const int call : {2, 0, 0, 1, 2}) {
    const Sent& sent = calls[static_cast<std::size_t>(call)];
    const std::vector<std::uint16_t> zeros(sent.out.bytes() / 2, 0);
    ASSERT_TRUE(sent.out.upload(zeros.data(), sent.out.bytes(), stream).ok());
    const MoeHandle handle = sent.handle();
    if (rows) {
      float *const weights = sent.entry_weights.as<float>(), *const sums = sent.sums.as<float>();
      ASSERT_TRUE(op->return_row_weights(weights, sums, stream, handle).ok());
      const Status again = op->return_row_weights(weights, sums, stream, handle);  // would take the first one's packets
      EXPECT_EQ(again.code(), StatusCode::kMisuse);
      EXPECT_EQ(again.message(), "return_row_weights was called; next comes combine or combine_send");
    }
    if (call == 1) {
      ASSERT_TRUE(op->combine_send(sent.received.get(), stream, nullptr, &handle).ok());
      ASSERT_TRUE(op->combine_recv(sent.out.get(), stream).ok());
    } else {
      ASSERT_TRUE(op->combine(sent.received.get(), sent.out.get(), stream, nullptr, &handle).ok());
    }
    EXPECT_EQ(bits_in(sent.out, stream), expected[static_cast<std::size_t>(call)]) << call;
    if (!rows) continue;
    std::vector<float> sums(sent.sent_weights.size());
    std::vector<std::int32_t> experts(sums.size());
    ASSERT_TRUE(sent.sums.download(sums.data(), sent.sums.bytes(), stream).ok());
    ASSERT_TRUE(sent.indices.download(experts.data(), sent.indices.bytes(), stream).ok());
    for (std::size_t i = 0; i < sums.size(); ++i)
      ASSERT_EQ(sums[i], experts[i] < 0 ? 0 : sent.sent_weights[i]) << call << " " << i;
  }
  ASSERT_TRUE(world.status().ok()) << world.status().to_string();
  EXPECT_TRUE(plain->close().ok());
  EXPECT_TRUE(op->close().ok());
}

TEST_P(Handles, AreCombinedInAnyOrderAndAgain) {
  WorldOptions with_room = options();
  with_room.heap_bytes = 16 << 20;
  MoeAllToAllDesc desc{.num_experts = kExperts, .experts_per_token = kTopK, .hidden = kHidden, .max_tokens = kTokens};
  desc.mode = std::get<1>(GetParam());
  desc.layout = std::get<2>(GetParam());
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    emu::Machine::instance().set_schedule({.seed = seed, .adversarial = true});
    on_streams(kRanks, with_room, [&](World& world, Stream stream) { combine_by_handles(world, stream, desc); });
    ASSERT_FALSE(HasFailure()) << "schedule seed " << seed;
  }
}

TEST_P(Handles, AreRefusedWhereTheyAreNotTaken) {
  on_streams(kRanks, options(), [&](World& world, Stream stream) {
    MoeAllToAllDesc desc{.num_experts = kExperts, .experts_per_token = kTopK, .hidden = kHidden, .max_tokens = kTokens};
    desc.mode = std::get<1>(GetParam());
    desc.layout = std::get<2>(GetParam());
    const bool rows = desc.layout == MoeLayout::kRows;
    auto plain = MoeAllToAll::create(world, desc);
    ASSERT_TRUE(plain.ok());
    const Sent sent(world, stream, plain->plan(), 0);
    const MoeHandle handle = sent.handle();
    const auto refuses = [](const Status& status, const char* what) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find(what), std::string::npos) << status.to_string();
    };
    refuses(plain->dispatch(sent.given(), sent.room(rows, true), stream), "MoeReceived.handle is given; allowed: null");
    refuses(plain->combine(sent.received.get(), sent.out.get(), stream, nullptr, &handle), "handle is given");
    EXPECT_TRUE(plain->close().ok());
    desc.handles = true;
    auto op = MoeAllToAll::create(world, desc);
    ASSERT_TRUE(op.ok());
    refuses(op->dispatch(sent.given(), sent.room(rows, false), stream), "MoeReceived.handle is null");
    refuses(op->combine(sent.received.get(), sent.out.get(), stream), "handle is null");
    MoeHandle many = handle;
    many.tokens = kTokens + 1;
    refuses(op->combine(sent.received.get(), sent.out.get(), stream, nullptr, &many), "MoeHandle.tokens is 11");
    if (!rows) refuses(op->return_row_weights(nullptr, nullptr, stream, handle), "return_row_weights() was called");
    EXPECT_TRUE(op->close().ok());
  });
}

}  // namespace
}  // namespace farwarp
