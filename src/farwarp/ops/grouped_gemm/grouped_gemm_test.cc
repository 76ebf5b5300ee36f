// The host API of grouped_gemm on every target that has it: errors of the caller and of numbers in device memory.
// case_test.cc tests results.
#include "farwarp/ops/grouped_gemm/grouped_gemm.h"

#include <gtest/gtest.h>

#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::bf16_buffer;
using harness::bits_in;
using harness::DeviceBuffer;

constexpr int kGroups = 3, kRows = 40, kN = 72, kK = 64;

/// x and w are 1 everywhere: every element of y is kK.
struct Product {
  Product(World& on, Stream in, GroupRows rows_given)
      : world(on), stream(in), counts(rows_given == GroupRows::kCounts) {
    const int all = kRows * (counts ? kGroups : 1);
    x = bf16_buffer(world.device(), stream, all * kK, 1);
    w = bf16_buffer(world.device(), stream, kGroups * kN * kK, 1);
    y = bf16_buffer(world.device(), stream, all * kN, 0);
    auto created = GroupedGemm::create(
        world, {.groups = kGroups, .max_rows = kRows, .n = kN, .k = kK, .group_rows = rows_given, .max_sms = 2});
    EXPECT_TRUE(created.ok()) << created.status().to_string();
    if (created.ok()) op.emplace(std::move(*created));
    EXPECT_TRUE(harness::create_buffers(world.device(), {{&rows, 64}}).ok());
  }
  Status call(const std::vector<std::int32_t>& numbers) {
    if (Status status = rows.upload(numbers.data(), numbers.size() * 4, stream); !status.ok()) return status;
    return (*op)(tensors(), stream);
  }
  GroupedGemmTensors tensors() { return {.x = x.get(), .w = w.get(), .rows = rows.as<std::int32_t>(), .y = y.get()}; }
  /// How many rows of y are kK; the others must be 0.
  int rows_written() {
    const auto bits = bits_in(y, stream);
    int written = 0;
    for (std::size_t row = 0; row < bits.size() / kN; ++row) {
      const float first = float_from(Bf16{bits[row * kN]});
      for (int column = 0; column < kN; ++column)
        EXPECT_EQ(float_from(Bf16{bits[row * kN + static_cast<std::size_t>(column)]}), first);
      EXPECT_TRUE(first == 0 || first == kK) << first;
      written += first == kK;
    }
    return written;
  }

  World& world;
  Stream stream;
  bool counts;
  std::optional<GroupedGemm> op;
  DeviceBuffer x, w, y, rows;
};

class GroupedGemmApi : public WorldTestBase {
 protected:
  static void on_product(GroupRows rows, const std::function<void(Product&)>& body) {
    on_streams(1, options(), [&](World& world, Stream stream) {
      if (world.device().shape().traits.matrix_unit != MatrixUnit::kWgmma) return;
      Product product(world, stream, rows);
      ASSERT_TRUE(product.op.has_value());
      body(product);
      EXPECT_TRUE(product.op->close().ok());
      EXPECT_EQ((*product.op)(product.tensors(), stream).code(), StatusCode::kMisuse);
    });
  }
};

TEST_P(GroupedGemmApi, WritesTheGroupsRows) {
  on_product(GroupRows::kOffsets, [](Product& product) {
    ASSERT_TRUE(product.call({3, 10, 10, 31}).ok());
    ASSERT_TRUE(drain(product.world, product.stream).ok());
    EXPECT_EQ(product.rows_written(), 28);
  });
  on_product(GroupRows::kCounts, [](Product& product) {
    ASSERT_TRUE(product.call({0, kRows, 1}).ok());
    ASSERT_TRUE(drain(product.world, product.stream).ok());
    EXPECT_EQ(product.rows_written(), kRows + 1);
  });
}

/// A wrong number ends as kBadInput, with its value, and nothing outside the tensors is accessed. The next call after
/// recover() is right.
TEST_P(GroupedGemmApi, WrongRowsAreFoundOnTheDevice) {
  struct Wrong {
    GroupRows rows;
    std::vector<std::int32_t> numbers;
    const char* found;
  };
  for (const Wrong& wrong :
       {Wrong{GroupRows::kOffsets, {0, 10, 5, 20}, "5"}, Wrong{GroupRows::kOffsets, {0, 10, 20, 41}, "41"},
        Wrong{GroupRows::kOffsets, {-1, 10, 20, 30}, "-1"}, Wrong{GroupRows::kCounts, {0, 41, 3}, "41"},
        Wrong{GroupRows::kCounts, {1, 2, -7}, "-7"}}) {
    on_product(wrong.rows, [&](Product& product) {
      ASSERT_TRUE(product.call(wrong.numbers).ok());
      const Status status = drain(product.world, product.stream);
      EXPECT_EQ(status.code(), StatusCode::kBadInput) << status.to_string();
      EXPECT_TRUE(contains(status.message(), "rows of a group")) << status.message();
      EXPECT_TRUE(contains(status.message(), wrong.found)) << status.message();
      ASSERT_TRUE(product.world.recover({product.stream}).ok());
      ASSERT_TRUE(
          product.call(product.counts ? std::vector<std::int32_t>{1, 1, 1} : std::vector<std::int32_t>{0, 1, 2, 3})
              .ok());
      EXPECT_TRUE(drain(product.world, product.stream).ok());
    });
  }
}

TEST_P(GroupedGemmApi, RefusesPointersInWords) {
  on_product(GroupRows::kOffsets, [](Product& product) {
    const auto message = [&](auto change) {
      GroupedGemmTensors tensors = product.tensors();
      change(tensors);
      return (*product.op)(tensors, product.stream).message();
    };
    EXPECT_EQ(message([](auto& t) { t.x = nullptr; }), "x is null; allowed: a device pointer");
    EXPECT_EQ(message([](auto& t) { t.rows = nullptr; }), "rows is null; allowed: a device pointer");
    EXPECT_EQ(message([](auto& t) { t.bias = t.w; }),
              "bias is given; allowed: null, as GroupedGemmDesc.has_bias is false");
    EXPECT_EQ(message([](auto& t) { t.x_scale = static_cast<const float*>(t.w); }),
              "x_scale is given; allowed: null, as GroupedGemmDesc.scaling is none");
    EXPECT_TRUE(contains(message([](auto& t) { t.y = const_cast<void*>(t.x); }), "y overlaps x"));
  });
}

INSTANTIATE_TEST_SUITE_P(Targets, GroupedGemmApi, ::testing::ValuesIn(kAllTargets), name_of_target);

}  // namespace
}  // namespace farwarp
