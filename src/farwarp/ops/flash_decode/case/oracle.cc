#include "farwarp/ops/flash_decode/case/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "farwarp/base/sizes.h"

namespace farwarp::decode {
namespace {

/// A score and the largest error of its exponential, relative.
struct Score {
  double value;
  double error;
};

Score score_of(const RowProblem& problem, std::span<const double> k) {
  harness::PartialSum sum;
  for (std::size_t i = 0; i < k.size(); ++i) {
    const double product = problem.q[i] * k[i];
    sum.value += product;
    sum.squares += product * product;
  }
  const double score = sum.value * problem.scale;
  const double accumulated = harness::accumulation_error(sum, static_cast<int>(k.size())) * problem.scale;
  // The factor scale * log2(e) is rounded up to three times, the same for all keys; the scaled score minus the maximum
  // is rounded once.
  return {score, accumulated + std::abs(score) * 0x1p-22};
}

}  // namespace

ExpectedRow expected_row(const RowProblem& problem) {
  const std::size_t dim = problem.q.size();
  const int keys = problem.seen.count;
  ExpectedRow result;
  result.out.resize(dim);
  std::vector<Score> scores(size(keys));
  std::vector<double> numbers(dim);
  double highest = problem.sink.value_or(-std::numeric_limits<double>::infinity());
  for (int key = 0; key < keys; ++key) {
    problem.seen.k(key, numbers);
    scores[size(key)] = score_of(problem, numbers);
    highest = std::max(highest, scores[size(key)].value);
  }
  if (highest == -std::numeric_limits<double>::infinity()) {
    result.lse = highest;
    return result;
  }
  double denominator = problem.sink ? std::exp(*problem.sink - highest) : 0;
  for (const Score& score : scores) denominator += std::exp(score.value - highest);
  result.lse = highest + std::log(denominator);

  // Every exponential, every product and every factor of a running sum has a few roundings of fp32 of its own.
  const double steps = 16 + keys / 64.0;
  const double arithmetic = steps * 0x1p-22;
  // P is at most 1 where it is rounded. Below the normal numbers of fp16 its error is half a subnormal.
  const double relative = problem.dtype == DType::kBf16 ? 0x1p-8 : 0x1p-11;
  const double least = problem.dtype == DType::kBf16 ? 0 : 0x1p-25;
  std::vector<double> absolute(dim), squares(dim), moved(dim);
  std::vector<harness::WeightedErrors> roundings(dim);
  double score_error = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int key = 0; key < keys; ++key) {
      const Score& score = scores[size(key)];
      const double weight = std::exp(score.value - highest) / denominator;
      if (pass == 0) score_error += weight * score.error;
      problem.seen.v(key, numbers);
      const bool alone = problem.seen.is_alone && problem.seen.is_alone(key);
      double along = 0;  // how far a relative change of the weight moves the row along itself
      for (std::size_t i = 0; i < dim; ++i) {
        const double v = numbers[i];
        harness::ExpectedElement& element = result.out[i];
        if (pass == 0) {
          element.value += weight * v;
          absolute[i] += weight * std::abs(v);
          squares[i] += weight * weight * v * v;
          if (!alone) roundings[i].add(std::abs(v) * std::max(weight * relative, least / denominator));
        } else {
          moved[i] += weight * std::abs(v - element.value) * score.error;
          along += weight * v * element.value;
        }
      }
      const double rounding = std::max(relative, weight == 0 ? 0 : least / (denominator * weight));
      if (pass == 1 && !alone) result.scale_variance += along * along * rounding * rounding / 3;
    }
  }
  for (std::size_t i = 0; i < dim; ++i) {
    harness::ExpectedElement& element = result.out[i];
    element.rounded = roundings[i].largest();
    element.rounded_squares = 3 * roundings[i].mean_square();
    element.accumulated =
        moved[i] + absolute[i] * arithmetic + harness::accumulation_error({result.out[i].value, squares[i]}, keys);
  }
  result.lse_error = score_error + arithmetic + std::abs(result.lse) * 0x1p-21;
  if (problem.sink) result.lse_error += std::abs(*problem.sink) * 0x1p-22;
  return result;
}

}  // namespace farwarp::decode
