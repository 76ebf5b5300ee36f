#include "farwarp/ops/moe_layer/case/oracle.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace farwarp::moe_layer {
namespace {

constexpr double kFp32 = 0x1p-20;  // of the activation's arithmetic, relative

double activated(Activation activation, double gate, double up) {
  if (activation == Activation::kSwiGlu) return gate / (1 + std::exp(-gate)) * up;
  const double g = std::min(gate, 7.0), u = std::clamp(up, -7.0, 7.0);
  return g / (1 + std::exp(-1.702 * g)) * (u + 1);
}

harness::PartialSum product(std::span<const double> x, std::span<const float> w, double bias) {
  double value = bias, squares = bias * bias;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double term = x[i] * static_cast<double>(w[i]);
    value += term;
    squares += term * term;
  }
  return {value, squares};
}

/// An expert's activated products of a row, their largest errors by fp32 arithmetic, and half the distance of numbers.
struct Hidden {
  std::vector<double> values, errors, halves;
};

Hidden hidden_of(const MoeLayerDesc& desc, const Weights& matrices, int expert, std::span<const double> x) {
  Hidden h;
  std::vector<float> w(x.size());
  const auto sum_of = [&](int row) {
    matrices.w1_row(expert, row, w);
    return product(x, w, static_cast<double>(matrices.bias1(expert, row)));
  };
  for (int i = 0; i < desc.intermediate; ++i) {
    const harness::PartialSum gate = sum_of(i), up = sum_of(desc.intermediate + i);
    const double value = activated(desc.activation, gate.value, up.value);
    double error = kFp32 * std::abs(value) + 0x1p-126;
    const double of_gate = harness::accumulation_error(gate, desc.hidden);
    const double of_up = harness::accumulation_error(up, desc.hidden);
    for (const double gate_error : {-of_gate, of_gate}) {
      for (const double up_error : {-of_up, of_up}) {
        const double other = activated(desc.activation, gate.value + gate_error, up.value + up_error);
        error = std::max(error, std::abs(other - value) + kFp32 * std::abs(value));
      }
    }
    h.values.push_back(value);
    h.errors.push_back(error);
    h.halves.push_back(harness::half_ulp(desc.dtype, std::abs(value) + error));
  }
  return h;
}

/// What the roundings of h make of an element.
struct RoundingsOfH {
  harness::WeightedErrors errors;
  void add_to(harness::ExpectedElement& element) const {
    // The square of a rounding, evenly spread, is half^2 / 3 with a deviation of 0.3 half^2. All columns of a row share
    // the roundings, so five deviations are added.
    element.rounded += errors.largest();
    element.rounded_squares += errors.squares + 3 * 5 * 0.3 * std::sqrt(errors.fourths);
  }
};

}  // namespace

void expected_row(const MoeLayerDesc& desc, int ranks, const Weights& matrices, std::span<const std::int32_t> experts,
                  std::span<const float> weights, std::span<const float> x,
                  std::span<harness::ExpectedElement> expected) {
  std::ranges::fill(expected, harness::ExpectedElement{});
  const std::vector<double> row(x.begin(), x.end());
  std::vector<double> sums(expected.size()), errors(expected.size());
  std::vector<RoundingsOfH> roundings(expected.size());
  std::vector<float> w(static_cast<std::size_t>(desc.intermediate));
  for (int rank = 0; rank < ranks; ++rank) {
    std::ranges::fill(sums, 0.0);
    std::ranges::fill(errors, 0.0);
    bool any = false;
    for (std::size_t slot = 0; slot < experts.size(); ++slot) {
      const int expert = experts[slot];
      if (expert < 0 || moe_rank_of(expert, ranks, desc.num_experts) != rank) continue;
      any = true;
      const double weight = static_cast<double>(weights[slot]), magnitude = std::abs(weight);
      const Hidden h = hidden_of(desc, matrices, expert, row);
      for (std::size_t c = 0; c < expected.size(); ++c) {
        const int column = static_cast<int>(c);
        matrices.w2_row(expert, column, w);
        const auto y = product(h.values, w, static_cast<double>(matrices.bias2(expert, column)));
        double error = harness::accumulation_error(y, desc.intermediate);
        for (std::size_t i = 0; i < w.size(); ++i) {
          const double factor = std::abs(static_cast<double>(w[i]));
          error += factor * h.errors[i];
          roundings[c].errors.add(magnitude * factor * h.halves[i]);
        }
        sums[c] += weight * y.value;
        errors[c] += magnitude * error + 0x1p-22 * std::abs(weight * y.value);
        harness::ExpectedElement rounded;  // y
        rounded.add_rounded(desc.dtype, y.value, error);
        expected[c].rounded += magnitude * rounded.rounded;
        expected[c].rounded_squares += weight * weight * rounded.rounded_squares;
      }
    }
    for (std::size_t c = 0; any && c < expected.size(); ++c)
      expected[c].add_rounded(desc.dtype, sums[c], errors[c] + 0x1p-22 * std::abs(sums[c]));
  }
  for (std::size_t c = 0; c < expected.size(); ++c) roundings[c].add_to(expected[c]);
}

}  // namespace farwarp::moe_layer
