// gemm of e4m3 numbers with scales, and grouped_gemm, as c.h takes them.
#include <algorithm>

#include "farwarp/c/c_test.h"

namespace farwarp_c_test {
namespace {

constexpr int kRows = 4, kColumns = 136, kDepth = 144;  // two blocks of each of w's sizes
constexpr DLDataType kUint8 = {kDLUInt, 8, 1}, kE4m3 = {10, 8, 1};
constexpr std::uint8_t kOne = 0x38;

std::vector<float> powers(std::size_t count) {
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<float>(1 << i % 3);
  return result;
}

struct Scaled {
  Scaled(Rank& on, farwarp_gemm_scaling scaling, bool by_column = false) : rank(on) {
    farwarp_gemm_desc desc;
    farwarp_gemm_desc_init(&desc);
    desc.m = kRows, desc.n = kColumns, desc.k = kDepth;
    desc.scaling = scaling;
    desc.x_scale_by_column = by_column;
    EXPECT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_OK) << farwarp_message();
    x = rank.tensor(kUint8, {kRows, kDepth}, std::vector<std::uint8_t>(kRows * kDepth, kOne));
    w = rank.tensor(kE4m3, {kColumns, kDepth}, std::vector<std::uint8_t>(kColumns * kDepth, kOne));
    y = rank.empty(kBf16, {kRows, kColumns});
  }
  ~Scaled() { EXPECT_EQ(farwarp_gemm_close(gemm), FARWARP_OK) << farwarp_message(); }

  DLTensor* scales(std::vector<std::int64_t> shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    return rank.tensor(kFloat32, std::move(shape), powers(count));
  }
  farwarp_code call(DLTensor* x_scale, DLTensor* w_scale) {
    return farwarp_gemm_call_scaled(gemm, x, w, x_scale, w_scale, nullptr, y, rank.stream);
  }
  /// What y is where x and w are 1. `of(row, column, step)`: both scales of 128 of k, multiplied.
  template <class Of>
  void expect(const Of& of) {
    const auto got = rank.numbers<std::uint16_t>(y, kRows * kColumns);
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kColumns; ++column)
        ASSERT_EQ(float_of(got[static_cast<std::size_t>(row * kColumns + column)]),
                  128 * of(row, column, 0) + (kDepth - 128) * of(row, column, 1))
            << row << ", " << column;
    }
  }

  Rank& rank;
  farwarp_gemm* gemm = nullptr;
  DLTensor *x, *w, *y;
};

float power(int i) { return static_cast<float>(1 << i % 3); }

TEST(CGemmFp8, EveryScaling) {
  run_ranks(1, [](Rank& rank, int) {
    Scaled blocks(rank, FARWARP_SCALE_BLOCKS), columns(rank, FARWARP_SCALE_BLOCKS, true);
    ASSERT_EQ(blocks.call(blocks.scales({kRows, 2}), blocks.scales({2, 2})), FARWARP_OK) << farwarp_message();
    blocks.expect([](int row, int column, int step) { return power(2 * row + step) * power(column / 128 * 2 + step); });
    ASSERT_EQ(columns.call(columns.scales({2, kRows}), columns.scales({2, 2})), FARWARP_OK) << farwarp_message();
    columns.expect(
        [](int row, int column, int step) { return power(step * kRows + row) * power(column / 128 * 2 + step); });
    Scaled rows(rank, FARWARP_SCALE_ROWS), tensor(rank, FARWARP_SCALE_TENSOR);
    ASSERT_EQ(rows.call(rows.scales({kRows}), rows.scales({kColumns})), FARWARP_OK) << farwarp_message();
    rows.expect([](int row, int column, int) { return power(row) * power(column); });
    ASSERT_EQ(tensor.call(tensor.scales({1}), tensor.scales({1})), FARWARP_OK) << farwarp_message();
    tensor.expect([](int, int, int) { return 1.0f; });
  });
}

TEST(CGemmFp8, WrongTensorsAreRefused) {
  run_ranks(1, [](Rank& rank, int) {
    const auto refused = [](farwarp_code code) {
      EXPECT_EQ(code, FARWARP_INVALID_ARGUMENT);
      return std::string(farwarp_message());
    };
    Scaled blocks(rank, FARWARP_SCALE_BLOCKS), rows(rank, FARWARP_SCALE_ROWS), none(rank, FARWARP_SCALE_NONE);
    DLTensor *const x_scale = blocks.scales({kRows, 2}), *const w_scale = blocks.scales({2, 2});
    EXPECT_EQ(refused(blocks.call(nullptr, w_scale)), "x_scale is NULL; allowed: a pointer");
    EXPECT_EQ(refused(blocks.call(x_scale, x_scale)), "w_scale has shape [4, 2]; allowed: [2, 2]");
    EXPECT_EQ(refused(rows.call(x_scale, w_scale)).find("x_scale has "), 0u) << farwarp_message();
    EXPECT_EQ(refused(none.call(x_scale, w_scale)).find("x is of uint8"), 0u) << farwarp_message();
    const DLDataType half = {kDLFloat, 16, 1};
    blocks.x->dtype = half;
    EXPECT_EQ(refused(blocks.call(x_scale, w_scale)), "x is of float16; allowed: uint8, float8_e4m3fn");
  });
}

TEST(CGemmFp8, WrongDescriptorsAreRefused) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_gemm_desc desc;
    farwarp_gemm_desc_init(&desc);
    desc.m = desc.n = desc.k = 64;
    farwarp_gemm* gemm = nullptr;
    desc.scaling = 4;
    EXPECT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "rank 0: desc.scaling is 4; allowed: 0 to 3, farwarp_gemm_scaling");
    desc.scaling = FARWARP_SCALE_ROWS;
    desc.x_scale_by_column = 1;
    EXPECT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "desc.x_scale_by_column is 1; allowed: 0, or 1 with scaling blocks");
  });
}

/// Two groups' rows of ones, and weights of which the second group's are 2.
struct Grouped {
  explicit Grouped(Rank& on) : rank(on) {
    farwarp_grouped_gemm_desc desc;
    farwarp_grouped_gemm_desc_init(&desc);
    desc.groups = 2, desc.max_rows = 6, desc.n = kN, desc.k = kK;
    EXPECT_EQ(farwarp_grouped_gemm_create(rank.world, &desc, &gemm), FARWARP_OK) << farwarp_message();
    std::vector<std::uint16_t> weights(2 * kN * kK, bf16(1));
    std::fill(weights.begin() + kN * kK, weights.end(), bf16(2));
    x = rank.tensor(kBf16, {6, kK}, std::vector<std::uint16_t>(6 * kK, bf16(1)));
    w = rank.tensor(kBf16, {2, kN, kK}, weights);
    y = rank.tensor(kBf16, {6, kN}, std::vector<std::uint16_t>(6 * kN, bf16(7)));
  }
  ~Grouped() { EXPECT_EQ(farwarp_grouped_gemm_close(gemm), FARWARP_OK) << farwarp_message(); }
  farwarp_code call(const std::vector<std::int32_t>& offsets) {
    DLTensor* const rows = rank.tensor(kInt32, {static_cast<std::int64_t>(offsets.size())}, offsets);
    return farwarp_grouped_gemm_call(gemm, x, w, nullptr, nullptr, rows, nullptr, y, rank.stream);
  }

  static constexpr int kN = 16, kK = 64;
  Rank& rank;
  farwarp_grouped_gemm* gemm = nullptr;
  DLTensor *x, *w, *y;
};

TEST(CGroupedGemm, EachGroupHasItsWeights) {
  run_ranks(1, [](Rank& rank, int) {
    Grouped grouped(rank);
    ASSERT_EQ(grouped.call({1, 3, 5}), FARWARP_OK) << farwarp_message();
    const auto got = rank.numbers<std::uint16_t>(grouped.y, 6 * Grouped::kN);
    const float expected[] = {7, 64, 64, 128, 128, 7};  // rows 0 and 5 are of no group
    for (int i = 0; i < 6 * Grouped::kN; ++i)
      ASSERT_EQ(float_of(got[static_cast<std::size_t>(i)]), expected[i / Grouped::kN]) << i;
  });
}

TEST(CGroupedGemm, WrongRowsAreTold) {
  run_ranks(1, [](Rank& rank, int) {
    Grouped grouped(rank);
    EXPECT_EQ(grouped.call({1, 3}), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "rows has shape [2]; allowed: [3]");
    ASSERT_EQ(grouped.call({1, 3, 7}), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 20'000), FARWARP_BAD_INPUT);
    EXPECT_NE(std::string(farwarp_message()).find("rows of a group"), std::string::npos) << farwarp_message();
  });
}

}  // namespace
}  // namespace farwarp_c_test
