// The host API of moe_layer: errors of the caller and of numbers in device memory. case_test.cc tests results.
#include "farwarp/ops/moe_layer/moe_layer.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/ops/moe_layer/args.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::bf16_buffer;
using harness::bits_in;
using harness::DeviceBuffer;

constexpr int kExperts = 4, kHidden = 64, kInter = 64, kTokens = 5;

const std::vector<std::int32_t> kRouting = {0, 1, 2, 3, 3, 3, -1, 2, -1, -1};
const std::vector<float> kResults = {8192, 8192, 8192, 4096, 0};

/// x is 1, w1 is 1 and w2 is 1 / 64, so gates and up projections are 64: h is 4096, y too, and out is 4096 times the
/// sum of a token's weights.
struct Layer {
  Layer(World& on, Stream in) : world(on), stream(in) {
    const int local = kExperts / world.size();
    x = bf16_buffer(world.device(), stream, kTokens * kHidden, 1);
    w1 = bf16_buffer(world.device(), stream, local * 2 * kInter * kHidden, 1);
    w2 = bf16_buffer(world.device(), stream, local * kHidden * kInter, 1.0f / 64);
    out = bf16_buffer(world.device(), stream, kTokens * kHidden, 0);
    EXPECT_TRUE(
        harness::create_buffers(world.device(), {{&topk, 8 * kTokens}, {&weights, 8 * kTokens}, {&count, 4}}).ok());
    const std::vector<float> ones(2 * kTokens, 1);
    EXPECT_TRUE(weights.upload(ones.data(), ones.size() * 4, stream).ok());
    auto created = MoeLayer::create(world, desc());
    EXPECT_TRUE(created.ok()) << created.status().to_string();
    if (created.ok()) op.emplace(std::move(*created));
  }
  static MoeLayerDesc desc() {
    return {.num_experts = kExperts,
            .experts_per_token = 2,
            .hidden = kHidden,
            .intermediate = kInter,
            .max_tokens = kTokens,
            .max_sms = 2};
  }
  MoeLayerTensors tensors() const {
    MoeLayerTensors all;
    all.x = x.get();
    all.topk_indices = topk.get();
    all.topk_weights = weights.as<float>();
    all.tokens = kTokens;
    all.w1 = w1.get();
    all.w2 = w2.get();
    all.out = out.get();
    return all;
  }
  Status call(const std::vector<std::int32_t>& experts) {
    if (Status status = topk.upload(experts.data(), experts.size() * 4, stream); !status.ok()) return status;
    return (*op)(tensors(), stream);
  }
  Status launch(Stream on) { return (*op)(tensors(), on); }
  void expect_right() {
    ASSERT_TRUE(call(kRouting).ok());
    ASSERT_TRUE(drain(world, stream).ok()) << world.status().to_string();
    EXPECT_EQ(results(), kResults);
  }
  /// The first element of each token's output; the others must equal it.
  std::vector<float> results() const {
    const auto bits = bits_in(out, stream);
    std::vector<float> firsts;
    for (int token = 0; token < kTokens; ++token) {
      const std::size_t begin = static_cast<std::size_t>(token) * kHidden;
      firsts.push_back(float_from(Bf16{bits[begin]}));
      for (std::size_t i = 1; i < kHidden; ++i) EXPECT_EQ(float_from(Bf16{bits[begin + i]}), firsts.back());
    }
    return firsts;
  }

  World& world;
  Stream stream;
  std::optional<MoeLayer> op;
  DeviceBuffer x, topk, weights, count, w1, w2, out;
};

class MoeLayerApi : public WorldTestBase {
 protected:
  static void on_layer(int ranks, const std::function<void(Layer&)>& body) {
    on_streams(ranks, options(), [&](World& world, Stream stream) {
      if (world.device().shape().traits.matrix_unit != MatrixUnit::kWgmma) return;
      Layer layer(world, stream);
      ASSERT_TRUE(layer.op.has_value());
      body(layer);
      EXPECT_TRUE(layer.op->close().ok());
      EXPECT_EQ((*layer.op)(layer.tensors(), stream).code(), StatusCode::kMisuse);
    });
  }
};

TEST_P(MoeLayerApi, AddsUpItsExperts) {
  for (const int ranks : {1, 2}) {
    on_layer(ranks, [](Layer& layer) {
      ASSERT_TRUE(layer.call(kRouting).ok());
      ASSERT_TRUE(drain(layer.world, layer.stream).ok());
      EXPECT_EQ(layer.results(), kResults);
    });
  }
}

TEST_P(MoeLayerApi, AnAbortedWorldComputesNothingUntilItRecovers) {
  for (const int ranks : {1, 2}) {
    on_layer(ranks, [](Layer& layer) {
      layer.expect_right();  // counters are then full
      expect_aborted_until_recovered(layer);
      layer.expect_right();
    });
  }
}

TEST_P(MoeLayerApi, CallsInTwoStreamsEnd) {
  if (is_real()) GTEST_SKIP() << "whether they meet is the device's choice";
  on_layer(1, [](Layer& layer) {
    layer.expect_right();
    TwoStreams seen;
    expect_two_streams_end(layer, seen);
  });
}

/// Also calls that renew tags: those of epochs 0 and 1 modulo 2 * kRetagPeriod.
TEST_P(MoeLayerApi, EpochsWrapBetweenCalls) {
  for (const std::uint32_t first : {0xfffffffcu, 2 * moe_layer::kRetagPeriod - 2}) {
    farwarp::testing::set_first_epoch(first);
    on_layer(2, [](Layer& layer) {
      for (int call = 0; call < 6; ++call) layer.expect_right();
    });
  }
  farwarp::testing::set_first_epoch(2);
}

/// Of one token, whose experts are also others'.
TEST_P(MoeLayerApi, NanStaysInItsToken) {
  on_layer(2, [](Layer& layer) {
    std::vector<std::uint16_t> x(kTokens * kHidden, bf16_from(1).bits);
    x[kHidden + 3] = 0x7fc0;
    ASSERT_TRUE(layer.x.upload(x.data(), x.size() * 2, layer.stream).ok());
    ASSERT_TRUE(layer.call(kRouting).ok());
    ASSERT_TRUE(drain(layer.world, layer.stream).ok());
    const auto bits = bits_in(layer.out, layer.stream);
    for (int token = 0; token < kTokens; ++token) {
      const float first = float_from(Bf16{bits[static_cast<std::size_t>(token) * kHidden]});
      if (token == 1) {
        EXPECT_NE(first, first);
      } else {
        EXPECT_EQ(first, kResults[static_cast<std::size_t>(token)]);
      }
    }
  });
}

/// An expert that does not exist ends as kBadInput; the next call after recover() is right.
TEST_P(MoeLayerApi, WrongExpertsAreFoundOnTheDevice) {
  for (const std::int32_t wrong : {kExperts, -2}) {
    on_layer(2, [&](Layer& layer) {
      std::vector<std::int32_t> experts = kRouting;
      experts[7] = wrong;
      ASSERT_TRUE(layer.call(experts).ok());
      const Status status = drain(layer.world, layer.stream);
      EXPECT_EQ(status.code(), StatusCode::kBadInput) << status.to_string();
      EXPECT_TRUE(contains(status.message(), "expert index")) << status.message();
      EXPECT_TRUE(contains(status.message(), "found " + std::to_string(wrong))) << status.message();
      ASSERT_TRUE(layer.world.recover({layer.stream}).ok());
      ASSERT_TRUE(layer.call(kRouting).ok());
      EXPECT_TRUE(drain(layer.world, layer.stream).ok());
      EXPECT_EQ(layer.results(), kResults);
    });
  }
}

TEST_P(MoeLayerApi, TokenCountsOnTheDeviceAreChecked) {
  for (const std::int32_t tokens : {-1, kTokens + 1, 2}) {
    on_layer(1, [&](Layer& layer) {
      ASSERT_TRUE(layer.topk.upload(kRouting.data(), kRouting.size() * 4, layer.stream).ok());
      ASSERT_TRUE(layer.count.upload(&tokens, 4, layer.stream).ok());
      MoeLayerTensors tensors = layer.tensors();
      tensors.tokens_on_device = layer.count.as<std::int32_t>();
      ASSERT_TRUE((*layer.op)(tensors, layer.stream).ok());
      const Status status = drain(layer.world, layer.stream);
      if (tokens == 2) {
        EXPECT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(layer.results(), (std::vector<float>{8192, 8192, 0, 0, 0}));
        return;
      }
      EXPECT_EQ(status.code(), StatusCode::kBadInput) << status.to_string();
      EXPECT_TRUE(contains(status.message(), "token count")) << status.message();
      EXPECT_TRUE(contains(status.message(), "found " + std::to_string(tokens))) << status.message();
      ASSERT_TRUE(layer.world.recover({layer.stream}).ok());
    });
  }
}

TEST_P(MoeLayerApi, NoTokens) {
  on_layer(1, [](Layer& layer) {
    MoeLayerTensors tensors = layer.tensors();
    tensors.tokens = 0;
    tensors.x = tensors.topk_indices = nullptr;
    tensors.topk_weights = nullptr;
    tensors.out = nullptr;
    ASSERT_TRUE((*layer.op)(tensors, layer.stream).ok());
    EXPECT_TRUE(drain(layer.world, layer.stream).ok());
  });
}

TEST_P(MoeLayerApi, WrongArgumentsHaveNames) {
  on_layer(1, [](Layer& layer) {
    const auto message = [&](const auto& change) {
      MoeLayerTensors tensors = layer.tensors();
      change(tensors);
      const Status status = (*layer.op)(tensors, layer.stream);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
      return status.message();
    };
    EXPECT_EQ(message([](MoeLayerTensors& t) { t.tokens = kTokens + 1; }), "tokens is 6; allowed: 0 to 5");
    EXPECT_TRUE(contains(message([](MoeLayerTensors& t) { t.x = nullptr; }), "x is null"));
    EXPECT_TRUE(contains(message([](MoeLayerTensors& t) { t.w1 = static_cast<const std::byte*>(t.w1) + 2; }), "w1"));
    EXPECT_TRUE(contains(message([](MoeLayerTensors& t) { t.w2 = nullptr; }), "w2 is null"));
    EXPECT_TRUE(contains(message([](MoeLayerTensors& t) { t.topk_weights = nullptr; }), "topk_weights is null"));
    EXPECT_EQ(message([](MoeLayerTensors& t) { t.bias1 = t.x; }),
              "bias1 is given; allowed: null, as MoeLayerDesc.has_bias is false");
    EXPECT_TRUE(contains(message([](MoeLayerTensors& t) { t.out = const_cast<void*>(t.x); }), "out"));
  });
}

INSTANTIATE_TEST_SUITE_P(Targets, MoeLayerApi, ::testing::ValuesIn(kAllTargets), name_of_target);

}  // namespace
}  // namespace farwarp
