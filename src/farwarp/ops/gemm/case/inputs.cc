#include "farwarp/ops/gemm/case/inputs.h"

#include <algorithm>
#include <cmath>

#include "farwarp/harness/compare.h"

namespace farwarp::gemm {
namespace {

constexpr double kLargestInput = 0.01;  // the challenge's

/// A sum of n nonzero products of -1 and 1 has the standard deviation sqrt(n). The density makes the largest exact
/// integer at least 8 standard deviations.
double exact_density(DType dtype, std::int64_t k) {
  const double most_products = std::pow(harness::largest_exact_integer(dtype) / 8, 2);
  return std::min(1.0, std::sqrt(most_products / static_cast<double>(k)));
}

}  // namespace

void fill_operand(InputKind kind, Operand operand, DType dtype, std::int64_t k, const harness::RandomStream& stream,
                  std::span<std::uint16_t> values) {
  switch (kind) {
    case InputKind::kExact:
      return harness::fill_ternary(stream, operand == Operand::kBias ? 0.5 : exact_density(dtype, k), dtype, values);
    case InputKind::kAuto:
    case InputKind::kUniform: return harness::fill_uniform(stream, -kLargestInput, kLargestInput, dtype, values);
    case InputKind::kNormal: return harness::fill_normal(stream, 0, 1, dtype, values);
    case InputKind::kMean: return harness::fill_normal(stream, operand == Operand::kW ? 1 : 0, 1, dtype, values);
    case InputKind::kTiny: {
      // w has the deviation 1 / sqrt(k), so that y has the deviation of x.
      const double deviation =
          operand == Operand::kW ? 1 / std::sqrt(static_cast<double>(k)) : harness::tiny_deviation(dtype);
      return harness::fill_normal(stream, 0, deviation, dtype, values);
    }
  }
}

}  // namespace farwarp::gemm
