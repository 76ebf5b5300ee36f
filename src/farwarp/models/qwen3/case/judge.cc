#include "farwarp/models/qwen3/case/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace farwarp::qwen3 {
namespace {

constexpr double kStep = 0.01;  ///< of a constant, to see how it moves the logits
/// With other roundings of equal size, 100 models of 1 to 48 tokens had at most 1.65 for a token and, from 12 tokens
/// on, 4.1 deviations of a lean.
constexpr double kMaxOfToken = 2.2, kMaxDeviations = 8;
constexpr int kLeastTokens = 12;  ///< fewer do not tell how far roundings move a lean

struct Constant {
  double OracleFactors::*factor;
  const char* name;
};
constexpr Constant kConstants[LogitsJudge::kLeans] = {
    {&OracleFactors::scores, "the scale of attention"}, {&OracleFactors::attended, "the size of attention's outputs"},
    {&OracleFactors::silu, "the constant of SiLU"},     {&OracleFactors::activated, "the size of SiLU(gate) * up"},
    {&OracleFactors::epsilon, "the norms' epsilon"},    {&OracleFactors::logits, "the size of the logits"}};

/// Of the errors of so many tokens together: their ratio to those of roundings has a deviation of 0.19 / sqrt(tokens).
double most_of_all(int tokens) { return 1.03 + std::max(0.05, 1.1 / std::sqrt(tokens)); }

}  // namespace

SequenceOracles::SequenceOracles(const OracleWeights& weights, bool leans, int zero_positions)
    : exact_(weights, false), rounded_(weights, true) {
  for (int i = 0; leans && i < LogitsJudge::kLeans; ++i) {
    OracleFactors factors;
    factors.*kConstants[i].factor += kStep;
    leaning_.emplace_back(weights, false, factors);
  }
  exact_.begin_with_zero_keys(zero_positions);
  rounded_.begin_with_zero_keys(zero_positions);
  for (Oracle& oracle : leaning_) oracle.begin_with_zero_keys(zero_positions);
}

void SequenceOracles::prefill(std::int32_t token) {
  (void)exact_.step(token, true);
  (void)rounded_.step(token, true);
  for (Oracle& oracle : leaning_) (void)oracle.step(token, true);
}

bool LogitsJudge::has_leans(const Qwen3Config& config) {
  const double of_layer = config.hidden * (2.0 * config.query_heads * config.head_dim + 3.0 * config.intermediate);
  return config.layers * of_layer + 1.0 * config.vocabulary * config.hidden < 1e7;
}

double LogitsJudge::Lean::deviations() const {
  return roundings_squares > 0 ? std::abs(errors) / std::sqrt(roundings_squares) : 0;
}

std::string LogitsJudge::add(SequenceOracles& oracles, std::int32_t input, std::span<const float> logits) {
  const std::vector<double> exact = oracles.exact_.step(input), rounded = oracles.rounded_.step(input);
  std::vector<double> errors(exact.size());
  double error = 0, rounding = 0, square = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    errors[i] = static_cast<double>(logits[i]) - exact[i];
    error += errors[i] * errors[i];
    rounding += (rounded[i] - exact[i]) * (rounded[i] - exact[i]);
    square += exact[i] * exact[i];
  }
  ++tokens_;
  error_squares_ += error;
  rounding_squares_ += rounding;
  squares_ += square;
  for (std::size_t constant = 0; constant < oracles.leaning_.size(); ++constant) {
    const std::vector<double> moved = oracles.leaning_[constant].step(input);
    double of_errors = 0, of_roundings = 0;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      const double derivative = (moved[i] - exact[i]) / kStep;
      of_errors += errors[i] * derivative;
      of_roundings += (rounded[i] - exact[i]) * derivative;
      leans_[constant].squares += derivative * derivative;
    }
    leans_[constant].errors += of_errors;
    leans_[constant].roundings_squares += of_roundings * of_roundings;
  }
  // A token's roundings may by chance be small, so those of all tokens so far count, too.
  const double explained = std::max(rounding, square * rounding_squares_ / squares_);
  if (error <= kMaxOfToken * kMaxOfToken * explained + 1e-12 * square) return {};
  return fmt::format("logits differ from float64 by {:.2g} of their norm, roundings explain {:.2g}",
                     std::sqrt(error / square), std::sqrt(explained / square));
}

harness::Verdict LogitsJudge::verdict() const {
  harness::Verdict verdict;
  verdict.pass = true;
  if (tokens_ == 0) return verdict;
  const double most = most_of_all(tokens_), of_roundings = std::sqrt(error_squares_ / rounding_squares_);
  verdict.rel_err = std::sqrt(error_squares_ / squares_);
  verdict.max_share = of_roundings / most;
  if (of_roundings > most)
    verdict.detail =
        fmt::format("the logits' error is {:.2f} times what roundings explain; allowed of {} tokens: {:.2f}",
                    of_roundings, tokens_, most);
  for (std::size_t i = 0; i < leans_.size() && tokens_ >= kLeastTokens; ++i) {
    const double deviations = leans_[i].deviations();
    verdict.tile_share = std::max(verdict.tile_share, deviations / kMaxDeviations);
    if (deviations > kMaxDeviations && verdict.detail.empty())
      verdict.detail = fmt::format(
          "the logits lean as if {} were off by {:.2g}%: {:.1f} deviations of what roundings do; allowed: {}",
          kConstants[i].name, 100 * leans_[i].errors / leans_[i].squares, deviations, kMaxDeviations);
  }
  verdict.pass = verdict.detail.empty();
  return verdict;
}

}  // namespace farwarp::qwen3
