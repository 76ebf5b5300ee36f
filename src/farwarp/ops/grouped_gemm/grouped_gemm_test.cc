// The host API of grouped_gemm on every target that has it: errors of the caller and of numbers in device memory.
// case_test.cc tests results.
#include "farwarp/ops/grouped_gemm/grouped_gemm.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
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

/// A wrong number ends as kBadInput, with the first wrong value, and nothing is computed. The next call after recover()
/// is right.
TEST_P(GroupedGemmApi, WrongRowsAreFoundOnTheDevice) {
  struct Wrong {
    GroupRows rows;
    std::vector<std::int32_t> numbers;
    const char* found;
  };
  for (const Wrong& wrong :
       {Wrong{GroupRows::kOffsets, {0, 10, 5, 20}, "found 5,"},
        Wrong{GroupRows::kOffsets, {0, 10, 20, 41}, "found 41,"},
        Wrong{GroupRows::kOffsets, {-1, 10, 20, 30}, "found -1,"},
        Wrong{GroupRows::kOffsets, {50, 10, 20, 30}, "found 50,"},
        Wrong{GroupRows::kOffsets, {0, 99, 20, 77}, "found 99,"}, Wrong{GroupRows::kCounts, {0, 41, 3}, "found 41,"},
        Wrong{GroupRows::kCounts, {1, -7, 99}, "found -7,"}}) {
    on_product(wrong.rows, [&](Product& product) {
      ASSERT_TRUE(product.call(wrong.numbers).ok());
      const Status status = drain(product.world, product.stream);
      EXPECT_EQ(status.code(), StatusCode::kBadInput) << status.to_string();
      EXPECT_TRUE(contains(status.message(), "rows of a group")) << status.message();
      EXPECT_TRUE(contains(status.message(), wrong.found)) << status.message();
      ASSERT_TRUE(product.world.recover({product.stream}).ok());
      EXPECT_EQ(product.rows_written(), 0);
      ASSERT_TRUE(
          product.call(product.counts ? std::vector<std::int32_t>{1, 1, 1} : std::vector<std::int32_t>{0, 1, 2, 3})
              .ok());
      EXPECT_TRUE(drain(product.world, product.stream).ok());
      EXPECT_EQ(product.rows_written(), 3);
    });
  }
}

/// Whatever the tile, a row's sums are added in the order of K.
TEST_P(GroupedGemmApi, EveryKernelGivesTheSameBits) {
  on_streams(1, options(), [&](World& world, Stream stream) {
    if (world.device().shape().traits.matrix_unit != MatrixUnit::kWgmma) return;
    constexpr int kM = 150, kColumns = 256, kDepth = 400;
    DeviceBuffer x, w, scales, rows, y;
    ASSERT_TRUE(harness::create_buffers(world.device(), {{&x, kM * kDepth * 2},
                                                         {&w, 2 * kColumns * kDepth * 2},
                                                         {&scales, 4096 * 4},
                                                         {&rows, 12},
                                                         {&y, kM * kColumns * 2}})
                    .ok());
    // Codes of e4m3 without NaN, or, in pairs, numbers of bf16 of the same sizes.
    std::vector<std::uint8_t> bytes(x.bytes() + w.bytes());
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::uint8_t>((i * 2654435761u >> 9) % 64 + i % 2 * 128);
    std::vector<float> ones(4096);
    for (std::size_t i = 0; i < ones.size(); ++i) ones[i] = 1 + static_cast<float>(i % 7) / 8;
    const std::int32_t offsets[] = {0, 70, kM};
    ASSERT_TRUE(x.upload(bytes.data(), x.bytes(), stream).ok() && w.upload(&bytes[x.bytes()], w.bytes(), stream).ok());
    ASSERT_TRUE(scales.upload(ones.data(), scales.bytes(), stream).ok() && rows.upload(offsets, 12, stream).ok());
    for (const GemmScaling scaling : {GemmScaling::kNone, GemmScaling::kBlocks}) {
      std::vector<std::uint16_t> first;
      for (const auto& [tile_rows, tile_columns] : {std::pair{64, 128}, std::pair{128, 128}, std::pair{128, 256}}) {
        const bool scaled = scaling != GemmScaling::kNone;
        if (scaled && tile_columns == 256) continue;
        auto op = GroupedGemm::create(world, {.groups = 2,
                                              .max_rows = kM,
                                              .n = kColumns,
                                              .k = kDepth,
                                              .scaling = scaling,
                                              .tile_rows = tile_rows,
                                              .tile_columns = tile_columns});
        ASSERT_TRUE(op.ok()) << op.status().to_string();
        const float* const scale = scaled ? scales.as<float>() : nullptr;
        ASSERT_TRUE((*op)({.x = x.get(),
                           .w = w.get(),
                           .x_scale = scale,
                           .w_scale = scale,
                           .rows = rows.as<std::int32_t>(),
                           .y = y.get()},
                          stream)
                        .ok());
        ASSERT_TRUE(drain(world, stream).ok());
        const auto got = bits_in(y, stream);
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << op->plan().kernel;
        EXPECT_TRUE(op->close().ok());
      }
      EXPECT_NE(first, std::vector<std::uint16_t>(first.size(), first[0]));
    }
  });
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
