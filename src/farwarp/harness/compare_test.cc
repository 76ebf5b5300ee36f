#include "farwarp/harness/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "farwarp/harness/inputs.h"

namespace farwarp::harness {
namespace {

constexpr int kTile = 128;

Verdict verdict_of(DType dtype, const std::vector<std::uint16_t>& got, const std::vector<ExpectedElement>& expected) {
  Comparison comparison(dtype, kTile, kTile);
  comparison.add(0, 0, got, expected);
  return comparison.verdict();
}

ExpectedElement exactly(double value) {
  ExpectedElement element;
  element.value = value;
  return element;
}

TEST(Rounding, HalfAnUlp) {
  EXPECT_EQ(half_ulp(DType::kBf16, 1.0), 0x1p-8);
  EXPECT_EQ(half_ulp(DType::kBf16, -1.99), 0x1p-8);
  EXPECT_EQ(half_ulp(DType::kBf16, 2.0), 0x1p-7);
  EXPECT_EQ(half_ulp(DType::kF16, 1.0), 0x1p-11);
  EXPECT_EQ(half_ulp(DType::kF16, 0), 0x1p-25) << "half the least number";
  EXPECT_EQ(half_ulp(DType::kF16, 0x1p-20), 0x1p-25);
  EXPECT_EQ(half_ulp(DType::kBf16, 0x1p-130), 0x1p-134);
}

// The bound of one element, for random sums of three terms that are each rounded to the dtype.
TEST(Rounding, NothingRightIsFurtherOffThanItsRoundingsAllow) {
  const RandomStream random(5, {});
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    double largest = 0;
    for (std::uint64_t i = 0; i < 100'000; ++i) {
      double exact = 0, got = 0;
      ExpectedElement element;
      for (std::uint64_t rank = 0; rank < 3; ++rank) {
        const double term = std::ldexp(random.uniform(6 * i + 2 * rank) - 0.5,
                                       static_cast<int>(random.below(6 * i + 2 * rank + 1, 20)) - 15);
        exact += term;
        got += decode(dtype, encode(dtype, static_cast<float>(term)));
        element.add_rounded(dtype, term, std::abs(term) * 0x1p-24);
      }
      const double error = std::abs(decode(dtype, encode(dtype, static_cast<float>(got))) - exact);
      ASSERT_LE(error, element.largest_error(dtype)) << exact;
      largest = std::max(largest, error / element.largest_error(dtype));
    }
    EXPECT_GT(largest, 0.9) << "the bound is not wider than it must be";
  }
}

TEST(Compare, AcceptsOneRoundingAndRejectsFour) {
  const std::vector<ExpectedElement> exact = {exactly(1.0 + 0x1p-11 * 0.99), exactly(-3.14159)};
  const std::vector<std::uint16_t> rounded = {encode(DType::kF16, static_cast<float>(exact[0].value)),
                                              encode(DType::kF16, -3.14159f)};
  EXPECT_TRUE(verdict_of(DType::kF16, rounded, exact).pass);
  const Verdict off = verdict_of(DType::kF16, {encode(DType::kF16, 1.0f + 0x1p-9f), rounded[1]}, exact);
  EXPECT_FALSE(off.pass);
  EXPECT_NEAR(off.max_share, 3.01, 0.01);
  EXPECT_NE(off.detail.find("y[0, 0]"), std::string::npos) << off.detail;
}

TEST(Compare, UnwrittenElementsFailWhateverIsExpected) {
  const Verdict verdict = verdict_of(DType::kBf16, {0, kPoison16, 0}, {exactly(0), exactly(0), exactly(0)});
  EXPECT_FALSE(verdict.pass);
  EXPECT_EQ(verdict.detail, "1 of 3 elements were not written, the first is call 0: y[0, 1]");
}

TEST(Compare, NanAndInfinityFail) {
  for (const float wrong : {std::nanf(""), INFINITY}) {
    const Verdict verdict = verdict_of(DType::kF16, {encode(DType::kF16, wrong)}, {exactly(1)});
    EXPECT_FALSE(verdict.pass);
    EXPECT_TRUE(std::isinf(verdict.max_share));
  }
}

/// An oracle that divides by zero allows nothing.
TEST(Compare, BoundsThatAreNoNumbersFail) {
  for (const double wrong : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Comparison comparison(DType::kBf16, 1, 1);
    ExpectedElement expected;
    expected.value = 2;
    expected.rounded = wrong;
    comparison.begin_call(0);
    comparison.add(0, 0, std::vector<std::uint16_t>{encode(DType::kBf16, 1.0f)}, std::vector{expected});
    EXPECT_FALSE(comparison.verdict().pass);
  }
}

TEST(Compare, NothingMayDifferFromZeroTerms) {
  EXPECT_TRUE(verdict_of(DType::kF16, {0}, {exactly(0)}).pass);
  EXPECT_FALSE(verdict_of(DType::kF16, {1}, {exactly(0)}).pass);
}

TEST(Compare, ExactElementsAreEqual) {
  Comparison right(DType::kBf16, kTile, kTile), wrong(DType::kBf16, kTile, kTile);
  const std::vector<std::uint16_t> got = {encode(DType::kBf16, 256), encode(DType::kBf16, -0.0f)};
  right.add_exact(7, 40, got, std::vector<double>{256, 0});
  EXPECT_TRUE(right.verdict().pass);
  wrong.add_exact(7, 40, got, std::vector<double>{254, 0});
  EXPECT_EQ(wrong.verdict().detail, "call 0: y[7, 40] is 256, expected exactly 254");
}

// Each element is within its own bound, but all of them together exceed the bound of a tile.
TEST(Compare, ManySmallErrorsFailAsATile) {
  const std::vector<ExpectedElement> expected(1000, exactly(1.0 + 0x1p-11 * 0.9));
  const Verdict verdict = verdict_of(DType::kF16, std::vector<std::uint16_t>(1000, encode(DType::kF16, 1)), expected);
  EXPECT_LT(verdict.max_share, 1);
  EXPECT_FALSE(verdict.pass);
  EXPECT_NE(verdict.detail.find("y[0..., 0...], 128 elements"), std::string::npos) << verdict.detail;
}

TEST(Compare, AWrongTileAmongRightOnesFails) {
  Comparison comparison(DType::kF16, kTile, kTile);
  const std::vector<std::uint16_t> ones(1000, encode(DType::kF16, 1));
  comparison.begin_call(0);
  for (int row = 0; row < 1000; ++row) comparison.add(row, 0, ones, std::vector(1000, exactly(1)));
  EXPECT_TRUE(comparison.verdict().pass);
  comparison.begin_call(1);
  for (int row = 0; row < 128; ++row) {
    std::vector<ExpectedElement> expected(1000, exactly(1));
    std::fill_n(expected.begin() + 256, 128, exactly(1.0 + 0x1p-11 * 0.7));
    comparison.add(row, 0, ones, expected);
  }
  EXPECT_FALSE(comparison.verdict().pass);
  EXPECT_NE(comparison.verdict().detail.find("call 1: the errors of y[0..., 256...]"), std::string::npos)
      << comparison.verdict().detail;
  comparison.begin_call(2);
  EXPECT_FALSE(comparison.verdict().pass) << "an earlier call's tile still counts";
}

// Rows of a softmax's kind: their errors before the last rounding are one factor for the whole row.
Comparison rows_times(double factor, std::uint64_t seed) {
  constexpr int kRows = 12, kColumns = 64;
  constexpr double kDeviation = 0x1p-11;  // of a row's factor
  const RandomStream random(seed, {});
  Comparison comparison(DType::kBf16, kRows, kColumns);
  comparison.begin_call(0);
  for (int row = 0; row < kRows; ++row) {
    const auto at = [&](int i) { return random.uniform(static_cast<std::uint64_t>(row * (kColumns + 1) + i)) - 0.5; };
    const double of_row = 1 + kDeviation * std::sqrt(12) * at(kColumns);
    double squares = 0;
    std::vector<std::uint16_t> got;
    std::vector<ExpectedElement> expected;
    for (int i = 0; i < kColumns; ++i) {
      const double value = at(i);
      expected.push_back(exactly(value));
      expected.back().rounded = 8 * kDeviation * std::abs(value);
      expected.back().rounded_squares = 3 * kDeviation * kDeviation * value * value;
      got.push_back(encode(DType::kBf16, static_cast<float>(value * of_row * factor)));
      squares += value * value;
    }
    comparison.add(row, 0, got, expected, kDeviation * kDeviation * squares * squares);
  }
  return comparison;
}

TEST(Compare, ResultsThatAreTooLargeOnAverageFail) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Verdict right = rows_times(1, seed).verdict();
    ASSERT_TRUE(right.pass) << seed << ": " << right.detail;
    ASSERT_GT(right.scale_share, 0);
    for (const double factor : {1.003, 0.997}) {
      const Verdict wrong = rows_times(factor, seed).verdict();
      ASSERT_LT(wrong.max_share, 1) << "each element is within its own bound";
      ASSERT_GT(wrong.scale_share, 1) << seed;
      ASSERT_FALSE(wrong.pass);
    }
  }
  EXPECT_NE(rows_times(1.0015, 1).verdict().detail.find("have 1.001"), std::string::npos)
      << rows_times(1.0015, 1).verdict().detail;
}

}  // namespace
}  // namespace farwarp::harness
