// The host API on every target there is: errors that the host finds, errors that only the device can find, and that the
// next call works. case_test.cc tests results.
#include "farwarp/ops/gemm/gemm.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "farwarp/base/fp8.h"
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

/// The product of e4m3 numbers of the first rank, with one scale for each operand.
struct Fp8Product {
  Fp8Product(World& world, Stream stream, const std::vector<std::uint8_t>& row, GemmScaling scaling)
      : k(static_cast<int>(row.size())), on(stream) {
    auto created = Gemm::create(world, {.m = kRows, .n = kRows, .k = k, .dtype = DType::kF16, .scaling = scaling});
    EXPECT_TRUE(created.ok()) << created.status().to_string();
    if (!created.ok()) return;
    op.emplace(std::move(*created));
    std::vector<std::uint8_t> rows;
    for (int i = 0; i < kRows; ++i) rows.insert(rows.end(), row.begin(), row.end());
    const std::vector<float> ones(1024, 1);
    EXPECT_TRUE(harness::create_buffers(world.device(), {{&x, rows.size()},
                                                         {&w, rows.size()},
                                                         {&scale, ones.size() * sizeof(float)},
                                                         {&y, kRows * kRows * sizeof(std::uint16_t)}})
                    .ok());
    for (DeviceBuffer* operand : {&x, &w}) EXPECT_TRUE(operand->upload(rows.data(), rows.size(), stream).ok());
    EXPECT_TRUE(scale.upload(ones.data(), ones.size() * sizeof(float), stream).ok());
  }
  Status call(const GemmScales& scales) { return (*op)(x.get(), w.get(), scales, nullptr, y.get(), on); }

  static constexpr int kRows = 8;
  int k;
  Stream on;
  std::optional<Gemm> op;
  DeviceBuffer x, w, scale, y;
};

bool has_wgmma(World& world) { return world.device().shape().traits.matrix_unit == MatrixUnit::kWgmma; }

// 1, then 2^-14 in each 32 of k: the matrix unit loses them beside 1, and adds up four of each later 128.
TEST_P(GemmApi, SumsOfE4m3AreAddedEvery128OfK) {
  on_streams(1, options(), [&](World& world, Stream stream) {
    if (!has_wgmma(world)) return;
    std::vector<std::uint8_t> row(8192);
    for (std::size_t i = 0; i < row.size(); i += 32) row[i] = fp8_from(Fp8Format::kOcp, i == 0 ? 1 : 0x1p-7f);
    for (const GemmScaling scaling : {GemmScaling::kBlocks, GemmScaling::kRows, GemmScaling::kTensor}) {
      Fp8Product product(world, stream, row, scaling);
      ASSERT_TRUE(product.op.has_value());
      ASSERT_TRUE(product.call({product.scale.as<float>(), product.scale.as<float>()}).ok());
      ASSERT_TRUE(drain(world, stream).ok());
      for (const std::uint16_t bits : bits_in(product.y, stream)) ASSERT_EQ(float_from(Half{bits}), 1.015625f);
      EXPECT_TRUE(product.op->close().ok());
    }
  });
}

TEST_P(GemmApi, RefusesScalesInWords) {
  on_streams(1, options(), [&](World& world, Stream stream) {
    if (!has_wgmma(world)) return;
    const std::vector<std::uint8_t> row(64);
    Fp8Product with(world, stream, row, GemmScaling::kTensor), without(world, stream, row, GemmScaling::kNone);
    ASSERT_TRUE(with.op && without.op);
    const float* const scale = with.scale.as<float>();
    const auto message = [](Fp8Product& product, GemmScales scales) { return product.call(scales).message(); };
    EXPECT_EQ(message(with, {nullptr, scale}), "x_scale is null; allowed: a device pointer");
    EXPECT_EQ(message(with, {scale, nullptr}), "w_scale is null; allowed: a device pointer");
    EXPECT_EQ(message(without, {scale, nullptr}), "x_scale is given; allowed: null, as GemmDesc.scaling is none");
    EXPECT_EQ(message(without, {nullptr, scale}), "w_scale is given; allowed: null, as GemmDesc.scaling is none");
    EXPECT_TRUE(contains(message(with, {with.y.as<float>(), scale}), "y overlaps x_scale"));
    for (Fp8Product* product : {&with, &without}) EXPECT_TRUE(product->op->close().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Targets, GemmApi, ::testing::ValuesIn(kAllTargets), name_of_target);

}  // namespace
}  // namespace farwarp
