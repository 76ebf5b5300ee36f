#include "farwarp/models/qwen3/case/draw_oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "farwarp/base/sizes.h"

namespace farwarp::qwen3 {
namespace {

/// Of sums of up to 64 weights, each of which has roundings of its exponent: as a part of the sum.
constexpr double kRounding = 1e-5;

struct Weights {
  std::vector<std::int32_t> order;  ///< the best top_k tokens, the best one first
  std::vector<double> sums;         ///< of the weights of the first i + 1 tokens; the last is 1
};

Weights weights_of(std::span<const float> logits, const Qwen3Sampling& sampling) {
  Weights weights;
  weights.order.resize(logits.size());
  std::iota(weights.order.begin(), weights.order.end(), 0);
  std::stable_sort(weights.order.begin(), weights.order.end(),
                   [&](std::int32_t first, std::int32_t second) { return logits[size(first)] > logits[size(second)]; });
  weights.order.resize(std::min(logits.size(), size(sampling.top_k)));
  const auto best = static_cast<double>(logits[size(weights.order[0])]);
  double sum = 0;
  for (const std::int32_t token : weights.order) {
    const auto logit = static_cast<double>(logits[size(token)]);
    sum += logit == best ? 1 : std::exp((logit - best) / static_cast<double>(sampling.temperature));
    weights.sums.push_back(sum);
  }
  for (double& value : weights.sums) value /= sum;
  return weights;
}

/// How many tokens are kept: the first number whose sum reaches `share`.
std::size_t kept_of(const std::vector<double>& sums, double share) {
  const auto reached = std::lower_bound(sums.begin(), sums.end(), share);
  return std::min(size(reached - sums.begin()) + 1, sums.size());
}

}  // namespace

std::uint32_t oracle_random(std::uint64_t seed, std::uint32_t position) {
  std::array<std::uint32_t, 4> words = {position, 0, 0, 0};
  for (std::uint32_t round = 0; round < 10; ++round) {
    const std::uint32_t key[] = {static_cast<std::uint32_t>(seed & 0xffffffff) + round * 0x9E3779B9u,
                                 static_cast<std::uint32_t>(seed >> 32) + round * 0xBB67AE85u};
    const std::uint64_t even = std::uint64_t{words[0]} * 0xD2511F53u, odd = std::uint64_t{words[2]} * 0xCD9E8D57u;
    words[0] = static_cast<std::uint32_t>(odd >> 32) ^ words[1] ^ key[0];
    words[1] = static_cast<std::uint32_t>(odd & 0xffffffff);
    words[2] = static_cast<std::uint32_t>(even >> 32) ^ words[3] ^ key[1];
    words[3] = static_cast<std::uint32_t>(even & 0xffffffff);
  }
  return words[0];
}

Qwen3Sampling aimed_sampling(Aim aim, std::span<const float> logits, const Qwen3Sampling& sampling) {
  Qwen3Sampling aimed = sampling;
  if (sampling.temperature == 0) return aimed;
  aimed.top_p = 1;
  const std::vector<double> sums = weights_of(logits, aimed).sums;
  const auto below = [&](std::size_t i) { return i == 0 ? 0.0 : sums[i - 1]; };
  constexpr double kNear = 3 * kRounding, kFar = 2e-4;
  // The boundary nearest to the middle: a wrong temperature moves it most.
  std::size_t middle = 0;
  for (std::size_t i = 0; i + 1 < sums.size(); ++i) {
    if (std::abs(sums[i] - 0.5) < std::abs(sums[middle] - 0.5)) middle = i;
  }
  double first = 0, end = 1;
  switch (aim) {
    case Aim::kBelow: first = sums[middle] - kFar, end = sums[middle] - kNear; break;
    case Aim::kAbove: first = sums[middle] + kNear, end = sums[middle] + kFar; break;
    case Aim::kKeptLast:
    case Aim::kKeptMore: {
      const std::size_t last = aim == Aim::kKeptLast ? middle : std::min(middle + 1, sums.size() - 1);
      aimed.top_p = static_cast<float>(aim == Aim::kKeptLast ? sums[middle] - kNear : sums[middle] + kNear);
      first = (below(last) + 0.3 * (sums[last] - below(last))) / sums[last];
      break;
    }
    case Aim::kLast: first = below(sums.size() - 1) + 0.3 * (1 - below(sums.size() - 1)); break;
  }
  constexpr int kTries = 200'000;
  for (int i = 0; i < kTries; ++i, ++aimed.seed) {
    const double number = std::floor(oracle_random(aimed.seed, 0) / 256.0) / 16777216.0;
    if (number >= first && number < end) return aimed;
  }
  return aimed;  // of a very improbable last token: a draw like any other
}

std::vector<double> oracle_probabilities(std::span<const float> logits, const Qwen3Sampling& sampling,
                                         std::vector<std::int32_t>& order) {
  const Weights weights = weights_of(logits, sampling);
  order = weights.order;
  const std::size_t kept = kept_of(weights.sums, static_cast<double>(sampling.top_p));
  std::vector<double> probabilities(order.size(), 0.0);
  for (std::size_t i = 0; i < kept; ++i)
    probabilities[i] = (weights.sums[i] - (i > 0 ? weights.sums[i - 1] : 0)) / weights.sums[kept - 1];
  return probabilities;
}

std::vector<std::int32_t> oracle_draws(std::span<const float> logits, const Qwen3Sampling& sampling,
                                       std::uint32_t position) {
  if (sampling.temperature == 0)
    return {static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())};
  const Weights weights = weights_of(logits, sampling);
  const std::vector<double>& sums = weights.sums;
  const double number = std::floor(oracle_random(sampling.seed, position) / 256.0) / 16777216.0;
  const auto share = static_cast<double>(sampling.top_p);
  const auto drawn = [&](std::size_t kept, double shift) {
    const double aim = number * sums[kept - 1] + shift;
    const auto after = std::upper_bound(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(kept), aim);
    return std::min(size(after - sums.begin()), kept - 1);
  };
  const std::size_t kept = kept_of(sums, share);
  std::vector<std::int32_t> tokens = {weights.order[drawn(kept, 0)]};
  for (std::size_t count = kept_of(sums, share - kRounding); count <= kept_of(sums, share + kRounding); ++count) {
    for (std::size_t i = drawn(count, -kRounding); i <= drawn(count, kRounding); ++i)
      tokens.push_back(weights.order[i]);
  }
  return tokens;
}

}  // namespace farwarp::qwen3
