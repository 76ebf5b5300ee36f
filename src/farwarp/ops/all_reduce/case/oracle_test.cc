// The oracle of the all-reduce, against sums that were computed by hand.
#include "farwarp/ops/all_reduce/case/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace farwarp::all_reduce {
namespace {

std::uint32_t sum(DType dtype, const std::vector<float>& values) {
  std::vector<std::uint32_t> terms;
  for (const float value : values) terms.push_back(bits_of(dtype, value));
  return sum_of(dtype, terms);
}

TEST(AllReduceOracle, AddsInTheOrderOfTheRanks) {
  EXPECT_EQ(number_of(DType::kF32, sum(DType::kF32, {0x1p13f, 0x1p-12f, -0x1p13f})), 0);  // 2^-12 is lost
  EXPECT_EQ(number_of(DType::kF32, sum(DType::kF32, {0x1p13f, -0x1p13f, 0x1p-12f})), 0x1p-12f);
  EXPECT_EQ(number_of(DType::kBf16, sum(DType::kBf16, {0x1p13f, 0x1p-12f, -0x1p13f})), 0);
  EXPECT_EQ(number_of(DType::kF16, sum(DType::kF16, {0x1p13f, -0x1p13f, 0x1p-12f})), 0x1p-12f);
}

TEST(AllReduceOracle, RoundsOnce) {
  // 256 + 1 + 1 in bf16: each sum rounded would give 256, because the distance there is 2.
  EXPECT_EQ(number_of(DType::kBf16, sum(DType::kBf16, {256, 1, 1})), 258);
  EXPECT_EQ(number_of(DType::kF16, sum(DType::kF16, {2048, 1, 1})), 2050);
}

TEST(AllReduceOracle, KeepsSigns) {
  EXPECT_EQ(sum(DType::kF32, {-0.0f}), 0x80000000u);
  EXPECT_EQ(sum(DType::kBf16, {-0.0f, -0.0f}), 0x8000u);
  EXPECT_EQ(sum(DType::kBf16, {-0.0f, 0.0f}), 0u);
}

TEST(AllReduceOracle, ComparesBitsButOfNaNs) {
  EXPECT_TRUE(same(DType::kBf16, 0x7fff, 0xffc1));
  EXPECT_FALSE(same(DType::kBf16, 0x8000, 0x0000));
  EXPECT_FALSE(same(DType::kF32, 0xffffffff, 0x3f800000));
}

/// With cancelling inputs a wrong order must give other bits, often, with every dtype.
TEST(AllReduceOracle, CancellingInputsShowTheOrder) {
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    const Inputs inputs{.dtype = dtype, .ranks = 3, .seed = 5, .kind = InputKind::kCancelling};
    int different = 0;
    for (int i = 0; i < 300; ++i) {
      const std::uint32_t a = inputs.bits(0, 0, i), b = inputs.bits(0, 1, i), c = inputs.bits(0, 2, i);
      const std::uint32_t forward[] = {a, b, c}, turned[] = {c, a, b};
      different += !same(dtype, sum_of(dtype, forward), sum_of(dtype, turned));
    }
    EXPECT_GT(different, 100) << name_of(dtype);
  }
}

TEST(AllReduceOracle, SpecialInputsAreSpecial) {
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    const Inputs inputs{.dtype = dtype, .ranks = 2, .seed = 5, .kind = InputKind::kSpecial};
    const std::uint32_t all_ones = dtype == DType::kF32 ? 0xffffffffu : 0xffffu;
    int nans = 0, infinities = 0;
    for (int i = 0; i < 16; ++i) EXPECT_EQ(inputs.bits(0, 0, i), all_ones);
    for (int i = 0; i < 300; ++i) {
      const float value = number_of(dtype, inputs.bits(0, 1, i));
      nans += std::isnan(value);
      infinities += std::isinf(value);
    }
    EXPECT_GT(nans, 5);
    EXPECT_GT(infinities, 5);
  }
}

/// By default a call of 1000 elements has sums that overflow, that are no numbers, and whose order shows.
TEST(AllReduceOracle, DefaultInputsAreOfAllKinds) {
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    const Inputs inputs{.dtype = dtype, .ranks = 3, .seed = 5};
    int nans = 0, overflows = 0, ordered = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::uint32_t a = inputs.bits(0, 0, i), b = inputs.bits(0, 1, i), c = inputs.bits(0, 2, i);
      const std::uint32_t forward[] = {a, b, c}, turned[] = {c, a, b};
      const float value = number_of(dtype, sum_of(dtype, forward));
      const bool finite = std::isfinite(number_of(dtype, a)) && std::isfinite(number_of(dtype, b)) &&
                          std::isfinite(number_of(dtype, c));
      nans += std::isnan(value);
      overflows += finite && std::isinf(value);
      ordered += finite && !same(dtype, sum_of(dtype, forward), sum_of(dtype, turned));
    }
    EXPECT_GT(nans, 20) << name_of(dtype);
    EXPECT_GT(overflows, 20) << name_of(dtype);
    EXPECT_GT(ordered, 100) << name_of(dtype);
  }
}

TEST(AllReduceOracle, InputsDifferByCallRankAndElement) {
  const Inputs inputs{.dtype = DType::kF32, .ranks = 3, .seed = 5, .kind = InputKind::kUniform};
  std::set<std::uint32_t> seen;
  for (int call = 0; call < 3; ++call)
    for (int rank = 0; rank < 3; ++rank)
      for (int i = 0; i < 30; ++i) seen.insert(inputs.bits(call, rank, i));
  EXPECT_GT(seen.size(), 268u);
}

}  // namespace
}  // namespace farwarp::all_reduce
