// The host API on every target there is: errors that the host finds, errors that only the device can find, and that the
// next call works. case_test.cc tests results.
#include "farwarp/ops/gemm/gemm.h"

#include <gtest/gtest.h>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::bf16_buffer;
using harness::bits_in;
using harness::DeviceBuffer;

constexpr int kM = 70, kN = 72, kK = 1280;

/// x and w are 1 everywhere: every element of y is kK.
struct Product {
  World& world;
  Gemm op;
  Stream stream;
  DeviceBuffer x, w, y;

  Status launch(Stream on) { return op(x.get(), w.get(), nullptr, y.get(), on); }
  void expect_right() {
    ASSERT_TRUE(y.poison(stream).ok());
    ASSERT_TRUE(launch(stream).ok());
    const Status status = drain(world, stream);
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (const std::uint16_t bits : bits_in(y, stream))
      ASSERT_EQ(float_from(Bf16{bits}), static_cast<float>(kK));  // exact in bf16
  }
};

class GemmApi : public WorldTestBase {
 protected:
  static void on_products(const std::function<void(Product&)>& body) {
    on_streams(2, options(), [&](World& world, Stream stream) {
      auto op = Gemm::create(world, {.m = kM, .n = kN, .k = kK, .max_sms = 2});
      ASSERT_TRUE(op.ok()) << op.status().to_string();
      const auto ones = [&](std::size_t elements) { return bf16_buffer(world.device(), stream, elements, 1); };
      Product product{world, std::move(*op), stream, ones(kM * kK), ones(kN * kK), ones(kM * kN)};
      body(product);
      EXPECT_TRUE(product.op.close().ok());
      EXPECT_EQ(product.launch(stream).code(), StatusCode::kMisuse);
    });
  }
};

TEST_P(GemmApi, RefusesPointersInWords) {
  on_products([](Product& product) {
    const auto call = [&](const void* x, const void* w, const void* bias, void* y) {
      return product.op(x, w, bias, y, product.stream).message();
    };
    void* const x = product.x.get();
    void* const w = product.w.get();
    void* const y = product.y.get();
    EXPECT_EQ(call(nullptr, w, nullptr, y), "x is null; allowed: a device pointer");
    EXPECT_EQ(call(x, nullptr, nullptr, y), "w is null; allowed: a device pointer");
    EXPECT_TRUE(contains(call(x, w, nullptr, product.y.as<std::byte>() + 8), "allowed: a multiple of 16"));
    EXPECT_EQ(call(x, w, x, y), "bias is given; allowed: null, as GemmDesc.has_bias is false");
    product.expect_right();
  });
}

TEST_P(GemmApi, RanksMustAgreeOnTheShape) {
  on_worlds(2, options(), [](World& world) {
    const auto op = Gemm::create(world, {.m = kM + world.rank(), .n = kN, .k = kK});
    EXPECT_EQ(op.status().code(), StatusCode::kMismatch) << op.status().to_string();
    auto again = Gemm::create(world, {.m = kM, .n = kN, .k = kK});
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_TRUE(again->close().ok());
  });
}

TEST_P(GemmApi, AnAbortedWorldComputesNothingUntilItRecovers) {
  on_products([](Product& product) { expect_aborted_until_recovered(product); });
}

// Calls in two streams at the same time. If splits are added up in the operator's workspace, one call finds the
// operator busy. On Hopper the calls share no memory, and mostly the first has left before the second begins. Detected
// or not, the next call is right.
TEST_P(GemmApi, CallsInTwoStreamsAreFoundOut) {
  if (is_real()) GTEST_SKIP() << "whether they meet is the device's choice";
  int found = 0;
  bool shares_memory = false;
  on_products([&](Product& product) {
    TwoStreams seen;
    expect_two_streams_end(product, seen);
    EXPECT_TRUE(seen.second_launch.ok()) << seen.second_launch.to_string();
    if (product.world.rank() != 0) return;
    if (seen.told) ++found;
    shares_memory = product.world.device().shape().traits.matrix_unit == MatrixUnit::kMfma;
  });
  if (shares_memory) {
    EXPECT_EQ(found, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GemmApi, ::testing::ValuesIn(kAllTargets), name_of_target);

}  // namespace
}  // namespace farwarp
