// The oracle on rows whose attention is known, and errors that it must not allow.
#include "farwarp/ops/flash_decode/case/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace farwarp::decode {
namespace {

/// Keys with the scores `scores`, whose values are 1, 2, 3 and so on.
RowProblem with_scores(const std::vector<double>& scores) {
  RowProblem problem;
  problem.q.assign(16, 0.0);
  problem.q[0] = 1;
  problem.seen.count = static_cast<int>(scores.size());
  problem.seen.k = [scores](int key, std::span<double> values) {
    std::fill(values.begin(), values.end(), 0.0);
    values[0] = scores[static_cast<std::size_t>(key)];
  };
  problem.seen.v = [](int key, std::span<double> values) { std::fill(values.begin(), values.end(), key + 1.0); };
  return problem;
}

TEST(FlashDecodeOracle, KnownRows) {
  const ExpectedRow equal = expected_row(with_scores({2, 2, 2}));
  EXPECT_NEAR(equal.out[5].value, 2, 1e-12);
  EXPECT_NEAR(equal.lse, 2 + std::log(3.0), 1e-12);
  const ExpectedRow one = expected_row(with_scores({10'000, -10'000}));
  EXPECT_EQ(one.out[0].value, 1);
  EXPECT_EQ(one.lse, 10'000);
  RowProblem with_sink = with_scores({1, 1});
  with_sink.sink = 1;
  EXPECT_NEAR(expected_row(with_sink).out[3].value, 1, 1e-12) << "(1 + 2) / 3";
  EXPECT_NEAR(expected_row(with_sink).lse, 1 + std::log(3.0), 1e-12);
}

TEST(FlashDecodeOracle, NothingSeen) {
  const ExpectedRow nothing = expected_row(with_scores({}));
  EXPECT_EQ(nothing.out[0].value, 0);
  EXPECT_EQ(nothing.lse, -std::numeric_limits<double>::infinity());
  RowProblem sink = with_scores({});
  sink.sink = 3;
  EXPECT_EQ(expected_row(sink).lse, 3);
}

// LSE in half precision, or a key too many, is outside of what is allowed.
TEST(FlashDecodeOracle, BoundsAreTight) {
  std::vector<double> scores(300);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = std::sin(static_cast<double>(i));
  const ExpectedRow right = expected_row(with_scores(scores));
  EXPECT_LT(right.lse_error, 1e-4);
  EXPECT_LT(right.out[0].largest_error(DType::kBf16), 0.015 * right.out[0].value);
  scores.push_back(0);
  EXPECT_GT(std::abs(expected_row(with_scores(scores)).lse - right.lse), 10 * right.lse_error);
}

}  // namespace
}  // namespace farwarp::decode
