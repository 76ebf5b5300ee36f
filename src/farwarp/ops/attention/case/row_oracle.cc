#include "farwarp/ops/attention/case/row_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "farwarp/harness/inputs.h"

namespace farwarp::attention {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTanhError = 0x1p-20, kSmallTanhError = 0x1p-21;  // absolute; relative, of less than 1/17
constexpr double kMostBelowBase = 7;  // of the highest logit: probabilities of a step add up to at most 1024
constexpr double kUnit = 0x1p-24;     // half the distance between neighbouring fp32 numbers, relative

/// Half the distance between neighbouring numbers of the dtype, relative to the smaller one, and absolute for subnormal
/// numbers.
double relative_half(DType dtype) { return harness::half_ulp(dtype, 1); }
double smallest_half(DType dtype) { return harness::half_ulp(dtype, 0); }

}  // namespace

RowOracle::RowOracle(const Inputs& inputs)
    : inputs_(inputs),
      desc_(inputs.sequences().desc()),
      // The operator's default is an fp32 number.
      scale_(desc_.scale > 0 ? desc_.scale : 1 / std::sqrt(static_cast<double>(desc_.head_dim))) {
  const auto columns = static_cast<std::size_t>(desc_.head_dim);
  decoded_.resize(1 << 16);
  for (std::size_t i = 0; i < decoded_.size(); ++i)
    decoded_[i] = harness::decode(desc_.dtype, static_cast<std::uint16_t>(i));
  bits_.resize(columns);
  query_.resize(columns);
  moved_.resize(columns);
  squares_.resize(columns);
  roundings_.resize(columns);
  right_.out.resize(columns);
}

const RightRow& RowOracle::row(int b, int head, int query, int rows) {
  const Seen seen = inputs_.sequences().seen(b, query);
  read_logits(b, head, query, seen);
  std::ranges::fill(right_.out, harness::ExpectedElement{});
  right_.lse = -kInfinity;
  right_.lse_error = 0;
  if (most_ == -kInfinity) return right_;
  add_values(b, head, seen);
  allow_roundings(seen.count(), rows);
  return right_;
}

/// The error of a score is that of its accumulation; scale * log2(e), the product with it and the exponent's argument
/// are rounded, too.
void RowOracle::read_logits(int b, int head, int query, const Seen& seen) {
  const std::size_t columns = query_.size();
  inputs_.query(b, head, query, bits_);
  for (std::size_t i = 0; i < columns; ++i) query_[i] = decoded_[bits_[i]];
  logits_.clear();
  errors_.clear();
  most_ = desc_.has_sinks ? inputs_.sink(head) : -kInfinity;
  const int kv_head = head / inputs_.heads_of_kv_head();
  for (int key = seen.first; key < seen.first + seen.count(); ++key) {
    inputs_.key(b, kv_head, key, bits_);
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      const double product = query_[i] * decoded_[bits_[i]];
      sum += product;
      squares += product * product;
    }
    const double logit = sum * scale_, cap = desc_.softcap;
    logits_.push_back(cap > 0 ? cap * std::tanh(logit / cap) : logit);
    // A capped logit moves by no more than the logit does; its tanh has an error of its own.
    const double of_cap = std::abs(logit) < cap / 17 ? kSmallTanhError * std::abs(logit) : cap * kTanhError;
    errors_.push_back(scale_ * harness::accumulation_error({sum, squares}, desc_.head_dim) +
                      4 * kUnit * std::abs(logit) + (cap > 0 ? of_cap : 0));
    most_ = std::max(most_, logits_.back());
  }
}

void RowOracle::add_values(int b, int head, const Seen& seen) {
  constexpr double kExp2Error = 0x1p-21;
  const int kv_head = head / inputs_.heads_of_kv_head();
  denominator_ = desc_.has_sinks ? std::exp(inputs_.sink(head) - most_) : 0;
  for (const double logit : logits_) denominator_ += std::exp(logit - most_);
  const double unit = relative_half(desc_.dtype), least = smallest_half(desc_.dtype) / denominator_;
  std::ranges::fill(moved_, 0);
  std::ranges::fill(squares_, 0);
  std::ranges::fill(roundings_, harness::WeightedErrors{});
  moved_weight_ = 0;
  for (std::size_t j = 0; j < logits_.size(); ++j) {
    const double below = most_ - logits_[j];
    // The argument of exp2 has at most the size of `below`, or is as far above a base that is low, and is rounded.
    const double error = std::expm1(std::min(errors_[j], 30.0)) + kExp2Error + 4 * kUnit * (below + kMostBelowBase);
    // The weight may be larger than the exact one by its own error.
    const double weight = std::exp(-below) / denominator_, moved = weight * error;
    moved_weight_ += moved;
    const auto values = inputs_.value(b, kv_head, seen.first + static_cast<int>(j));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = decoded_[values[i]], term = weight * value;
      right_.out[i].value += term;
      moved_[i] += moved * std::abs(value);
      squares_[i] += term * term;
      roundings_[i].add(std::abs(value) * (unit * weight + least));
    }
  }
}

/// Probabilities are rounded to the dtype relative to the row's maximum, or a base that is lower. The denominator is the
/// sum of those that are not rounded. Where the result of a column is y, a weight that is off by e moves it by
/// e * (v - y).
void RowOracle::allow_roundings(int keys, int rows) {
  const double denominator_error = kUnit * (8 + 2 * std::sqrt(static_cast<double>(keys)));
  for (std::size_t i = 0; i < right_.out.size(); ++i) {
    harness::ExpectedElement& element = right_.out[i];
    const double size = std::abs(element.value);
    element.rounded = roundings_[i].largest();
    element.rounded_squares = 3 * roundings_[i].mean_square(rows);
    element.accumulated = moved_[i] + moved_weight_ * size + (denominator_error + 4 * kUnit) * size +
                          harness::accumulation_error({element.value, squares_[i]}, keys) + 0x1p-126;
  }
  right_.lse = most_ + std::log(denominator_);
  right_.lse_error = logarithm_error(right_.lse, moved_weight_ + denominator_error);
  // The base of the exponents is a logit: an error that all keys share moves no weight, but the logarithm.
  if (!errors_.empty()) right_.lse_error += *std::ranges::max_element(errors_);
}

double logarithm_error(double lse, double relative) { return relative + 0x1p-21 * (1 + std::abs(lse)); }

}  // namespace farwarp::attention
