#include "farwarp/harness/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "farwarp/harness/inputs.h"

namespace farwarp::harness {
namespace {

Verdict verdict_of(DType dtype, const std::vector<std::uint16_t>& got, const std::vector<double>& expected,
                   const std::vector<double>& magnitude, int roundings) {
  Comparison comparison(dtype);
  comparison.add(got, expected, magnitude);
  return comparison.verdict(roundings);
}

TEST(Compare, AcceptsOneRoundingAndRejectsFour) {
  const std::vector<double> exact = {1.0 + 0x1p-11 * 0.99, -3.14159};
  const std::vector<std::uint16_t> rounded = {encode(DType::kF16, static_cast<float>(exact[0])),
                                              encode(DType::kF16, -3.14159f)};
  const std::vector<double> magnitude = {1.0, 3.14159};
  EXPECT_TRUE(verdict_of(DType::kF16, rounded, exact, magnitude, 1).pass);
  const Verdict off = verdict_of(DType::kF16, {encode(DType::kF16, 1.0f + 0x1p-9f), rounded[1]}, exact, magnitude, 1);
  EXPECT_FALSE(off.pass);
  EXPECT_NEAR(off.max_scaled_err, 3.01, 0.01);
  EXPECT_NE(off.detail.find("element 0"), std::string::npos);
}

TEST(Compare, UnwrittenElementsFailWhateverIsExpected) {
  const Verdict verdict = verdict_of(DType::kBf16, {0, kPoison16, 0}, {0, 0, 0}, {0, 1, 0}, 3);
  EXPECT_FALSE(verdict.pass);
  EXPECT_EQ(verdict.detail, "1 of 3 elements were not written, the first is 1");
}

TEST(Compare, NanAndInfinityFail) {
  for (const float wrong : {std::nanf(""), INFINITY}) {
    const Verdict verdict = verdict_of(DType::kF16, {encode(DType::kF16, wrong)}, {1}, {1}, 3);
    EXPECT_FALSE(verdict.pass);
    EXPECT_TRUE(std::isinf(verdict.max_scaled_err));
  }
}

TEST(Compare, NothingMayDifferWhereNothingIsRounded) {
  EXPECT_TRUE(verdict_of(DType::kF16, {0}, {0}, {0}, 3).pass);
  EXPECT_FALSE(verdict_of(DType::kF16, {1}, {0}, {0}, 3).pass);
}

TEST(Compare, ManySmallErrorsOfOneSignFailByTheFrobeniusNorm) {
  // Each element is off by 2.9 times eps: within the bound of one element, impossible for all of 10,000.
  const std::vector<double> expected(10'000, 1.0 + 2.9 * 0x1p-11);
  const std::vector<std::uint16_t> ones(10'000, encode(DType::kF16, 1.0f));
  const Verdict verdict = verdict_of(DType::kF16, ones, expected, expected, 3);
  EXPECT_FALSE(verdict.pass);
  EXPECT_NE(verdict.detail.find("relative error"), std::string::npos);
}

// A sampled GEMM-RS of the challenge: K split over eight ranks, inputs U(-0.01, 0.01) in bf16, the result in bf16.
struct SampledGemm {
  static constexpr int kRows = 64, kColumns = 64, kDepth = 4096, kRanks = 8;
  std::vector<std::uint16_t> x = std::vector<std::uint16_t>(kRows * kDepth);
  std::vector<std::uint16_t> w = std::vector<std::uint16_t>(kColumns * kDepth);
  std::vector<double> exact, magnitude;

  SampledGemm() {
    fill_uniform(RandomStream(1371, {0}), -0.01, 0.01, DType::kBf16, x);
    fill_uniform(RandomStream(1371, {1}), -0.01, 0.01, DType::kBf16, w);
    exact = product([](int, int, int) { return true; }, &magnitude);
  }

  // keeps(row, column, rank): whether the rank's part of K contributes to the element.
  template <class Keeps>
  std::vector<double> product(const Keeps& keeps, std::vector<double>* magnitudes = nullptr) const {
    std::vector<double> result(kRows * kColumns);
    if (magnitudes) magnitudes->assign(result.size(), 0);
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kColumns; ++column) {
        for (int k = 0; k < kDepth; ++k) {
          if (!keeps(row, column, k * kRanks / kDepth)) continue;
          const double term = static_cast<double>(decode(DType::kBf16, x[row * kDepth + k])) *
                              decode(DType::kBf16, w[column * kDepth + k]);
          result[row * kColumns + column] += term;
          if (magnitudes) (*magnitudes)[row * kColumns + column] += std::abs(term);
        }
      }
    }
    return result;
  }

  Verdict judge(const std::vector<double>& result) const {
    std::vector<std::uint16_t> rounded;
    for (const double value : result) rounded.push_back(encode(DType::kBf16, static_cast<float>(value)));
    // Two roundings: a rank's partial sum and the result.
    return verdict_of(DType::kBf16, rounded, exact, magnitude, 2);
  }
};

TEST(Compare, TheChallengesToleranceAcceptsWhatOursRejects) {
  const SampledGemm gemm;
  const auto three_of_eight = gemm.product([](int, int, int rank) { return rank < 3; });
  EXPECT_EQ(count_outside(three_of_eight, gemm.exact, 1e-2, 1e-2), 0) << "the challenge's tolerance sees nothing";
  EXPECT_FALSE(gemm.judge(three_of_eight).pass);
  EXPECT_GT(gemm.judge(three_of_eight).rel_err, 0.7);
  // One rank's contribution to one 16 x 16 tile.
  const auto one_tile =
      gemm.product([](int row, int column, int rank) { return rank != 5 || row >= 16 || column >= 16; });
  EXPECT_EQ(count_outside(one_tile, gemm.exact, 1e-2, 1e-2), 0);
  EXPECT_FALSE(gemm.judge(one_tile).pass);
  EXPECT_TRUE(gemm.judge(gemm.exact).pass) << gemm.judge(gemm.exact).detail;
}

}  // namespace
}  // namespace farwarp::harness
