// The edge cases of the host API, on both emulated targets: what the host refuses, what only the device can find, and
// calls whose epochs wrap. case_test.cc tests the results.
#include "farwarp/ops/moe_a2a/moe_a2a.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::bf16_buffer;
using harness::bits_in;
using harness::buffer_of;
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
    return {.x = x.get(), .topk_indices = indices.get(), .topk_weights = weights.as<float>(), .tokens = number};
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
    for (const std::uint16_t bits : bits_in(out, stream)) ASSERT_EQ(float_from(Bf16{bits}), 4.0f);
  }
};

class MoeApi : public WorldTestOf<std::tuple<TargetKind, MoeMode>> {
 protected:
  static void on_ranks(const std::function<void(Rank&)>& body) {
    WorldOptions with_room = options();
    with_room.heap_bytes = 4 << 20;
    on_streams(kRanks, with_room, [&](World& world, Stream stream) {
      auto op = MoeAllToAll::create(world, small_desc(std::get<MoeMode>(GetParam())));
      ASSERT_TRUE(op.ok()) << op.status().to_string();
      Device& device = world.device();
      Rank rank{world,
                std::move(*op),
                stream,
                bf16_buffer(device, stream, kTokens * kHidden, 1),
                buffer_of(device, kTokens * kTopK * 4),
                buffer_of(device, kTokens * kTopK * 4),
                buffer_of(device, 4),
                buffer_of(device, kTokens * kHidden * 2)};
      const std::vector<float> weights(kTokens * kTopK, 1.0f);
      EXPECT_TRUE(rank.weights.upload(weights.data(), weights.size() * 4, stream).ok());
      rank.set_index(-1, 0);
      body(rank);
      // No rank frees its memory while a peer's kernel may still write it.
      EXPECT_TRUE(world.bootstrap().barrier(std::chrono::seconds(60)).ok());
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, MoeApi,
                         ::testing::Combine(::testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                                            ::testing::Values(MoeMode::kWords, MoeMode::kBulk)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  name_of(std::get<1>(info.param));
                         });

void expect_names(const Status& status, StatusCode code, const std::string& name) {
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
    expect_names(rank.op.fused(rank.tokens(1), static_cast<MoeExpert>(99), nullptr, rank.out.get(), rank.stream),
                 StatusCode::kInvalidArgument, "MoeExpert is 99");
    expect_names(rank.op.dispatch(rank.tokens(1), {}, rank.stream), StatusCode::kInvalidArgument, "MoeReceived.x");
    expect_names(rank.op.combine_recv(rank.out.get(), rank.stream), StatusCode::kMisuse, "combine_recv");
    EXPECT_TRUE(rank.fused(rank.tokens(kTokens)).ok());  // the refused calls have changed nothing
    rank.expect_four();
  });
}

// NaNs whose bits are all ones, which in words mode mean that nothing has arrived: as rows, and as their sums.
TEST_P(MoeApi, NansOfAllOnesArriveAsNans) {
  on_ranks([](Rank& rank) {
    const std::vector<std::uint16_t> nans(kTokens * kHidden, 0xffff), ones(kTokens * kHidden, bf16_from(1.0f).bits);
    ASSERT_TRUE(rank.x.upload(nans.data(), nans.size() * 2, rank.stream).ok());
    EXPECT_TRUE(rank.fused(rank.tokens(kTokens)).ok());
    for (const std::uint16_t bits : bits_in(rank.out, rank.stream)) ASSERT_TRUE(std::isnan(float_from(Bf16{bits})));
    ASSERT_TRUE(rank.x.upload(ones.data(), ones.size() * 2, rank.stream).ok());
    for (int call = 0; call < 4; ++call) EXPECT_TRUE(rank.fused(rank.tokens(kTokens)).ok());
    rank.expect_four();
  });
}

TEST_P(MoeApi, AnExpertOutOfRangeEndsTheCallAndRecoverMendsIt) {
  on_ranks([](Rank& rank) {
    if (rank.world.rank() == 1) rank.set_index(3, kExperts);
    const Status status = rank.fused(rank.tokens(kTokens));
    if (rank.world.rank() == 1) {
      expect_names(status, StatusCode::kBadInput,
                   "'expert index': found " + std::to_string(kExperts) + ", allowed is at most " +
                       std::to_string(kExperts - 1) + " (epoch");
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
      expect_names(status, StatusCode::kBadInput, "'token count': found " + std::to_string(kTokens + 1));
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

/// A second operator of the rank's World, with the buffers of a split call.
struct SplitCall {
  MoeAllToAll op;
  Stream stream;
  DeviceBuffer x, counts, offsets, out;

  static SplitCall create(Rank& rank, int max_sms, bool weights_at_combine = false) {
    MoeAllToAllDesc desc = small_desc(std::get<1>(MoeApi::GetParam()));
    desc.max_sms = max_sms;
    desc.weights_at_combine = weights_at_combine;
    Device& device = rank.world.device();
    auto op = MoeAllToAll::create(rank.world, desc);
    EXPECT_TRUE(op.ok()) << op.status().to_string();
    const auto rows = static_cast<std::size_t>(op->plan().recv_rows);
    return {std::move(*op),
            *device.create_stream(),
            buffer_of(device, rows * kHidden * 2),
            buffer_of(device, kExperts * 4),
            buffer_of(device, (kExperts + 1) * 4),
            buffer_of(device, kTokens * kHidden * 2)};
  }
  void send(Rank& rank) { EXPECT_TRUE(op.dispatch_send(rank.tokens(kTokens), stream).ok()); }
  void receive() {
    EXPECT_TRUE(op.dispatch_recv({x.get(), counts.as<std::int32_t>(), offsets.as<std::int32_t>()}, stream).ok());
  }
  /// The experts change nothing, so a token's two entries add up to 2.
  void finish(Rank& rank, const float* weights = nullptr) {
    EXPECT_TRUE(op.combine_send(x.get(), stream, weights).ok());
    EXPECT_TRUE(op.combine_recv(out.get(), stream).ok());
    ASSERT_TRUE(rank.world.device().synchronize(stream, 60'000'000'000).ok());
    ASSERT_TRUE(rank.world.status().ok()) << rank.world.status().to_string();
    for (const std::uint16_t bits : bits_in(out, stream)) ASSERT_EQ(float_from(Bf16{bits}), 2.0f);
  }
};

// While one batch waits for a late rank, another on a second stream runs to its end: the late rank takes part in the
// second batch first, and then in the first. On a device that cannot run both at once a wait would end at its deadline.
TEST_P(MoeApi, TwoBatchesOverlapOnTwoStreams) {
  on_ranks([](Rank& rank) {
    const int half = rank.world.device().shape().multiprocessors / 2;
    SplitCall first = SplitCall::create(rank, half), second = SplitCall::create(rank, half);
    for (int batch = 0; batch < 3; ++batch) {
      const bool late = rank.world.rank() == batch % kRanks;
      if (!late) first.send(rank), first.receive();
      second.send(rank), second.receive();
      second.finish(rank);
      if (late) first.send(rank), first.receive();
      first.finish(rank);
    }
    EXPECT_TRUE(first.op.close().ok());
    EXPECT_TRUE(second.op.close().ok());
    for (const SplitCall* call : {&first, &second}) rank.world.device().destroy_stream(call->stream);
  });
}

/// Weights are given either to dispatch or to combine; to which, the descriptor says.
TEST_P(MoeApi, WeightsAreRefusedWhereTheyAreNotTaken) {
  on_ranks([](Rank& rank) {
    SplitCall at_dispatch = SplitCall::create(rank, 0), at_combine = SplitCall::create(rank, 0, true);
    MoeTokens tokens = rank.tokens(kTokens);
    const float* const weights = tokens.topk_weights;
    const MoeReceived received = {at_combine.x.get(), at_combine.counts.as<std::int32_t>(),
                                  at_combine.offsets.as<std::int32_t>()};
    expect_names(at_combine.op.dispatch(tokens, received, at_combine.stream), StatusCode::kInvalidArgument,
                 "MoeTokens.topk_weights is given; allowed: null");
    expect_names(at_combine.op.fused(tokens, MoeExpert::kRankScale, nullptr, at_combine.out.get(), at_combine.stream),
                 StatusCode::kInvalidArgument, "fused() was called with MoeAllToAllDesc.weights_at_combine");
    tokens.topk_weights = nullptr;
    expect_names(at_dispatch.op.dispatch_send(tokens, at_dispatch.stream), StatusCode::kInvalidArgument,
                 "MoeTokens.topk_weights");
    ASSERT_TRUE(at_combine.op.dispatch(tokens, received, at_combine.stream).ok());
    at_dispatch.send(rank), at_dispatch.receive();
    void *const x = at_combine.x.get(), *const out = at_combine.out.get();
    for (const bool half : {false, true}) {
      expect_names(
          half ? at_combine.op.combine_send(x, at_combine.stream) : at_combine.op.combine(x, out, at_combine.stream),
          StatusCode::kInvalidArgument, "topk_weights");
      expect_names(half ? at_dispatch.op.combine_send(x, at_dispatch.stream, weights)
                        : at_dispatch.op.combine(x, out, at_dispatch.stream, weights),
                   StatusCode::kInvalidArgument, "topk_weights is given; allowed: null");
    }
    at_dispatch.finish(rank);
    at_combine.finish(rank, weights);
    EXPECT_TRUE(at_dispatch.op.close().ok());
    EXPECT_TRUE(at_combine.op.close().ok());
    for (const SplitCall* call : {&at_dispatch, &at_combine}) rank.world.device().destroy_stream(call->stream);
  });
}

/// MoeLayout::kRows through the host API: what it refuses, counts of the sending half, a rank that receives nothing.
TEST_P(MoeApi, RowsOncePerRank) {
  on_ranks([](Rank& rank) {
    constexpr StatusCode kWrong = StatusCode::kInvalidArgument;
    MoeAllToAllDesc desc = small_desc(std::get<1>(MoeApi::GetParam()));
    desc.layout = MoeLayout::kRows;
    auto op = MoeAllToAll::create(rank.world, desc);
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    Device& device = rank.world.device();
    const MoeTokens tokens = rank.tokens(kTokens);
    ASSERT_EQ(op->plan().recv_rows, kRanks * kTokens);
    const auto counts = buffer_of(device, kExperts * 4), offsets = buffer_of(device, (kRanks + 1) * 4);
    const auto x = buffer_of(device, kRanks * kTokens * kHidden * 2),
               experts = buffer_of(device, kRanks * kTokens * kTopK * 4),
               weights = buffer_of(device, kRanks * kTokens * kTopK * 4);
    const MoeCounts counted = {counts.as<std::int32_t>(), offsets.as<std::int32_t>()};
    MoeReceived received;
    received.x = x.get();
    expect_names(op->fused(tokens, MoeExpert::kRankScale, nullptr, x.get(), rank.stream), kWrong, "layout kRows");
    expect_names(op->dispatch(tokens, received, rank.stream), kWrong, "MoeCounts");
    expect_names(op->dispatch_send(tokens, rank.stream, {counted.counts, nullptr}), kWrong, "MoeCounts.offsets");
    expect_names(rank.op.dispatch_send(tokens, rank.stream, counted), kWrong, "MoeCounts are given");
    ASSERT_TRUE(op->dispatch_send(tokens, rank.stream, counted).ok());
    std::vector<std::int32_t> first(kRanks + 1);
    ASSERT_TRUE(offsets.download(first.data(), first.size() * 4, rank.stream).ok());
    const bool idle = rank.world.rank() == 1;  // all tokens go to experts 0 and 5, of ranks 0 and 2
    for (int source = 0; const std::int32_t row : first) ASSERT_EQ(row, idle ? 0 : kTokens * source++);
    received.rows = kRanks * kTokens + 1;
    expect_names(op->dispatch_recv(received, rank.stream), kWrong, "MoeReceived.rows is 13");
    received.rows = first[kRanks];
    received.counts = counted.counts;  // both or none: the kernel would store the offsets, too
    expect_names(op->dispatch_recv(received, rank.stream), kWrong, "MoeCounts.offsets");
    received.counts = nullptr;
    if (!idle) {
      expect_names(op->dispatch_recv(received, rank.stream), kWrong, "MoeReceived.topk_indices");
      received.topk_indices = experts.get();
      received.topk_weights = weights.as<float>();
    }
    ASSERT_TRUE(op->dispatch_recv(received, rank.stream).ok());
    ASSERT_TRUE(op->combine(idle ? nullptr : x.get(), rank.out.get(), rank.stream).ok());
    ASSERT_TRUE(device.synchronize(rank.stream, 60'000'000'000).ok());
    ASSERT_TRUE(rank.world.status().ok()) << rank.world.status().to_string();
    for (const std::uint16_t bits : bits_in(rank.out, rank.stream)) ASSERT_EQ(float_from(Bf16{bits}), 2.0f);
    EXPECT_TRUE(op->close().ok());
  });
}

// A rank whose weights do not come: the others name it, and what they wait for.
TEST_P(MoeApi, WeightsThatDoNotComeEndTheCall) {
  on_ranks([](Rank& rank) {
    SplitCall call = SplitCall::create(rank, 0, true);
    MoeTokens tokens = rank.tokens(kTokens);
    const float* const weights = tokens.topk_weights;
    tokens.topk_weights = nullptr;
    EXPECT_TRUE(call.op.dispatch_send(tokens, call.stream).ok());
    call.receive();
    if (rank.world.rank() != 1) {
      EXPECT_TRUE(call.op.combine(call.x.get(), call.out.get(), call.stream, weights).ok());
    }
    EXPECT_TRUE(rank.world.device().synchronize(call.stream, 60'000'000'000).ok());
    const Status status = rank.world.status();
    EXPECT_TRUE(rank.world.rank() == 1 || !status.ok());
    if (status.code() == StatusCode::kDeadline) expect_names(status, StatusCode::kDeadline, "combine weights");
    EXPECT_TRUE(rank.world.bootstrap().barrier(std::chrono::seconds(60)).ok());
    rank.world.device().destroy_stream(call.stream);
  });
}

TEST_P(MoeApi, RanksThatDisagreeOnTheFormFindOut) {
  on_ranks([](Rank& rank) {
    SplitCall call = SplitCall::create(rank, 0);
    if (rank.world.rank() == 1) {
      call.send(rank), call.receive();
    } else {
      EXPECT_TRUE(
          call.op.fused(rank.tokens(kTokens), MoeExpert::kRankScale, nullptr, call.out.get(), call.stream).ok());
    }
    EXPECT_TRUE(rank.world.device().synchronize(call.stream, 60'000'000'000).ok());
    const StatusCode code = rank.world.status().code();
    EXPECT_TRUE(code == StatusCode::kMismatch || code == StatusCode::kAborted) << rank.world.status().to_string();
    rank.world.device().destroy_stream(call.stream);
  });
}

TEST_P(MoeApi, AnExpertOutOfRangeEndsADispatch) {
  on_ranks([](Rank& rank) {
    if (rank.world.rank() == 1) rank.set_index(3, 0x7fffffff);
    SplitCall call = SplitCall::create(rank, 0);
    call.send(rank), call.receive();
    EXPECT_TRUE(rank.world.device().synchronize(call.stream, 60'000'000'000).ok());
    if (rank.world.rank() == 1) {
      expect_names(rank.world.status(), StatusCode::kBadInput, "expert index");
    } else {
      EXPECT_EQ(rank.world.status().code(), StatusCode::kAborted) << rank.world.status().to_string();
    }
    rank.world.device().destroy_stream(call.stream);
  });
}

TEST_P(MoeApi, Fp8DispatchNeedsRoomForScales) {
  on_ranks([](Rank& rank) {
    MoeAllToAllDesc desc = small_desc(std::get<1>(MoeApi::GetParam()));
    desc.fp8_dispatch = true;
    auto op = MoeAllToAll::create(rank.world, desc);
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    const MoeReceived received{rank.x.get(), rank.count.as<std::int32_t>(), rank.count.as<std::int32_t>()};
    expect_names(op->dispatch(rank.tokens(1), received, rank.stream), StatusCode::kInvalidArgument,
                 "MoeReceived.scales");
    EXPECT_TRUE(op->close().ok());
  });
}

TEST_P(MoeApi, EpochsWrapBetweenCalls) {
  farwarp::testing::set_first_epoch(0xfffffffcu);
  on_ranks([](Rank& rank) {
    for (int call = 0; call < 8; ++call) {
      // Inbox slots that the first calls leave idle must not pass for packets of the epochs after the wrap.
      const int tokens = call < 5 ? 1 : kTokens;
      ASSERT_TRUE(rank.fused(rank.tokens(tokens)).ok()) << call << rank.world.status().to_string();
    }
    rank.expect_four();
  });
  farwarp::testing::set_first_epoch(2);
}

}  // namespace
}  // namespace farwarp
