// The host API at its edges, on both emulated targets: what the host refuses, what only the device can find, and calls whose
// epochs wrap. Right results are case_test.cc's matter.
#include "farwarp/ops/moe_a2a/moe_a2a.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "farwarp/harness/device_buffer.h"
#include "farwarp/world/host/testing.h"

namespace farwarp {
namespace {

using harness::DeviceBuffer;

constexpr int kRanks = 3, kExperts = 6, kTopK = 2, kHidden = 64, kTokens = 4;

MoeAllToAllDesc small_desc(MoeMode mode) {
  MoeAllToAllDesc desc;
  desc.num_experts = kExperts;
  desc.experts_per_token = kTopK;
  desc.hidden = kHidden;
  desc.max_tokens = kTokens;
  desc.mode = mode;
  return desc;
}

/// One rank: a World, an operator, and inputs whose tokens all go to experts 0 and 5, with weight 1.
struct Rank {
  World& world;
  MoeAllToAll op;
  Stream stream;
  DeviceBuffer x, indices, weights, count, out;

  MoeTokens tokens(int number) const {
    MoeTokens result;
    result.x = x.get();
    result.topk_indices = indices.get();
    result.topk_weights = weights.as<float>();
    result.tokens = number;
    return result;
  }
  Status fused(const MoeTokens& input) {
    const Status status = op.fused(input, MoeExpert::kRankScale, nullptr, out.get(), stream);
    if (!status.ok()) return status;
    const Status drained = world.device().synchronize(stream, 60'000'000'000);
    return world.status().ok() ? drained : world.status();
  }
  void set_index(int entry, std::int32_t expert) {
    std::vector<std::int32_t> all(kTokens * kTopK);
    for (int i = 0; i < kTokens * kTopK; ++i) all[static_cast<std::size_t>(i)] = i % 2 == 0 ? 0 : kExperts - 1;
    if (entry >= 0) all[static_cast<std::size_t>(entry)] = expert;
    EXPECT_TRUE(indices.upload(all.data(), all.size() * 4, stream).ok());
  }
  /// x is 1 everywhere: experts 0 and 5 live on ranks 0 and 2, which scale by 1 and 3.
  void expect_four() {
    std::vector<std::uint16_t> result(kTokens * kHidden);
    ASSERT_TRUE(out.download(result.data(), result.size() * 2, stream).ok());
    for (const std::uint16_t bits : result) ASSERT_EQ(float_from(Bf16{bits}), 4.0f);
  }
};

class MoeApi : public ::testing::TestWithParam<std::tuple<TargetKind, MoeMode>> {
 protected:
  static void on_ranks(const std::function<void(Rank&)>& body) {
    const auto [target, mode] = GetParam();
    const Status status =
        run_ranks(kRanks, [&, target = target, mode = mode](std::shared_ptr<Bootstrap> bootstrap) -> Status {
          WorldOptions options;
          options.target = target;
          options.heap_bytes = 4 << 20;
          auto world = World::create(bootstrap, options);
          if (!world.ok()) return world.status();
          auto op = MoeAllToAll::create(*world, small_desc(mode));
          if (!op.ok()) return op.status();
          Device& device = world->device();
          const auto buffer = [&](std::size_t bytes) {
            auto created = DeviceBuffer::create(device, bytes);
            return std::move(*created);
          };
          Rank rank{*world,
                    std::move(*op),
                    *device.create_stream(),
                    buffer(kTokens * kHidden * 2),
                    buffer(kTokens * kTopK * 4),
                    buffer(kTokens * kTopK * 4),
                    buffer(4),
                    buffer(kTokens * kHidden * 2)};
          const std::vector<std::uint16_t> ones(kTokens * kHidden, bf16_from(1.0f).bits);
          const std::vector<float> weights(kTokens * kTopK, 1.0f);
          EXPECT_TRUE(rank.x.upload(ones.data(), ones.size() * 2, rank.stream).ok());
          EXPECT_TRUE(rank.weights.upload(weights.data(), weights.size() * 4, rank.stream).ok());
          rank.set_index(-1, 0);
          body(rank);
          // Nobody's memory goes while a peer's kernel may still write to it.
          EXPECT_TRUE(bootstrap->barrier(std::chrono::seconds(60)).ok());
          device.destroy_stream(rank.stream);
          return {};
        });
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, MoeApi,
                         ::testing::Combine(::testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                                            ::testing::Values(MoeMode::kPacket, MoeMode::kBulk)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) == MoeMode::kPacket ? "_packet" : "_bulk");
                         });

void expect_names(const Status& status, StatusCode code, const char* name) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(name), std::string::npos) << status.to_string();
}

TEST_P(MoeApi, HostRefusesWhatItCanSee) {
  on_ranks([](Rank& rank) {
    expect_names(rank.fused(rank.tokens(kTokens + 1)), StatusCode::kInvalidArgument, "MoeTokens.tokens is 5");
    expect_names(rank.fused(rank.tokens(-1)), StatusCode::kInvalidArgument, "MoeTokens.tokens is -1");
    MoeTokens shifted = rank.tokens(kTokens);
    shifted.x = static_cast<const std::byte*>(shifted.x) + 2;
    expect_names(rank.fused(shifted), StatusCode::kInvalidArgument, "MoeTokens.x");
    expect_names(rank.op.fused(rank.tokens(1), MoeExpert::kTable, nullptr, rank.out.get(), rank.stream),
                 StatusCode::kInvalidArgument, "expert_table");
    expect_names(rank.op.dispatch(rank.tokens(1), {}, rank.stream), StatusCode::kInvalidArgument, "MoeReceived.x");
    expect_names(rank.op.combine_recv(rank.out.get(), rank.stream), StatusCode::kMisuse, "combine_recv");
    EXPECT_TRUE(rank.fused(rank.tokens(kTokens)).ok());  // and nothing of it has left a trace
    rank.expect_four();
  });
}

TEST_P(MoeApi, AnExpertOutOfRangeEndsTheCallAndRecoverMendsIt) {
  on_ranks([](Rank& rank) {
    if (rank.world.rank() == 1) rank.set_index(3, kExperts);
    const Status status = rank.fused(rank.tokens(kTokens));
    if (rank.world.rank() == 1) {
      expect_names(status, StatusCode::kBadInput, "expert index");
    } else {
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status.to_string();
    }
    rank.set_index(-1, 0);
    EXPECT_FALSE(rank.fused(rank.tokens(kTokens)).ok());  // a World stays aborted until it recovers
    ASSERT_TRUE(rank.world.recover({rank.stream}).ok());
    EXPECT_TRUE(rank.fused(rank.tokens(kTokens)).ok());
    rank.expect_four();
  });
}

TEST_P(MoeApi, ADeviceTokenCountOutOfRangeEndsTheCall) {
  on_ranks([](Rank& rank) {
    const std::int32_t count = rank.world.rank() == 2 ? kTokens + 1 : kTokens;
    ASSERT_TRUE(rank.count.upload(&count, 4, rank.stream).ok());
    MoeTokens tokens = rank.tokens(-1);
    tokens.tokens_on_device = rank.count.as<std::int32_t>();
    const Status status = rank.fused(tokens);
    if (rank.world.rank() == 2) {
      expect_names(status, StatusCode::kBadInput, "token count");
    } else {
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status.to_string();
    }
  });
}

TEST_P(MoeApi, ARankWithoutTokensNeedsNoTensors) {
  on_ranks([](Rank& rank) {
    const bool idle = rank.world.rank() == 0;
    for (int call = 0; call < 3; ++call) {
      const Status status =
          idle ? rank.op.fused({}, MoeExpert::kRankScale, nullptr, nullptr, rank.stream)
               : rank.op.fused(rank.tokens(kTokens), MoeExpert::kRankScale, nullptr, rank.out.get(), rank.stream);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_TRUE(rank.world.device().synchronize(rank.stream, 60'000'000'000).ok());
    EXPECT_TRUE(rank.world.status().ok()) << rank.world.status().to_string();
    if (!idle) rank.expect_four();
  });
}

TEST_P(MoeApi, EpochsWrapBetweenCalls) {
  farwarp::testing::set_first_epoch(0xfffffffcu);
  on_ranks([](Rank& rank) {
    for (int call = 0; call < 8; ++call) {
      // Slots that the first calls leave untouched must not pass for packets of the epoch after the wrap.
      const int tokens = call < 5 ? 1 : kTokens;
      ASSERT_TRUE(rank.fused(rank.tokens(tokens)).ok()) << call << rank.world.status().to_string();
    }
    rank.expect_four();
  });
  farwarp::testing::set_first_epoch(2);
}

}  // namespace
}  // namespace farwarp
