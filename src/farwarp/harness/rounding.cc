#include "farwarp/harness/rounding.h"

#include <algorithm>
#include <cmath>

namespace farwarp::harness {
namespace {

struct Format {
  int precision;  // bits of a normal number, the leading one included
  int smallest;   // exponent of the smallest normal number
};

constexpr Format format_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {11, -14};
    case DType::kBf16: return {8, -126};
    default: return {24, -126};
  }
}

}  // namespace

double half_ulp(DType dtype, double value) {
  const Format format = format_of(dtype);
  const int exponent = value == 0 ? format.smallest : std::max(std::ilogb(value), format.smallest);
  return std::ldexp(1.0, exponent - format.precision);
}

double accumulation_error(const PartialSum& sum, int terms) {
  const double steps = (terms + 15) / 16;
  // All fp32 numbers are multiples of 2^-149.
  return steps * (0x1p-22 * (std::abs(sum.value) / 2 + 2 * std::sqrt(sum.squares)) + 0x1p-149);
}

double short_sums_error(const PartialSum& sum) {
  constexpr double kInstructions = 4, kDeviations = 4;
  return kInstructions * 0x1p-13 * (std::abs(sum.value) / 2 + kDeviations * std::sqrt(sum.squares));
}

void ExpectedElement::add(double term, double error) {
  value += term;
  accumulated += error;
}

void ExpectedElement::add_rounded(DType dtype, double term, double error) {
  add(term, error);
  const double half = half_ulp(dtype, std::abs(term) + error);
  rounded += half;
  rounded_squares += half * half;
}

double ExpectedElement::largest_error(DType dtype) const {
  const double before = rounded + accumulated;
  return before + half_ulp(dtype, std::abs(value) + before);
}

double ExpectedElement::mean_square_error(DType dtype) const {
  const double last = half_ulp(dtype, value);
  // h^2 / 3, except for a sum of rounded numbers: if two numbers of one binade have a sum in the next binade, it is
  // exact or a tie.
  return last * last / (rounded > 0 ? 2 : 3) + rounded_squares / 3 + accumulated * accumulated;
}

double WeightedErrors::largest() const { return std::min(halves, 8 * std::sqrt(squares / 3)); }
double WeightedErrors::mean_square(int rows) const {
  return std::min(squares, 0.180 * squares + 5 * 0.187 * std::sqrt(fourths / rows));
}

ExpectedElement expected_element(DType dtype, const Roundings& roundings, std::span<const PartialSum> sums, int terms) {
  ExpectedElement element;
  double magnitude = 0;
  for (const PartialSum& sum : sums) {
    const double error = accumulation_error(sum, terms) + (roundings.short_sums ? short_sums_error(sum) : 0);
    magnitude += std::abs(sum.value);
    if (roundings.partial_sums) {
      element.add_rounded(dtype, sum.value, error);
    } else {
      element.add(sum.value, error);
    }
  }
  const double half = half_ulp(dtype, magnitude);
  element.rounded += roundings.running_sums * half;
  element.rounded_squares += 1.5 * roundings.running_sums * half * half;  // they are sums of rounded numbers
  return element;
}

}  // namespace farwarp::harness
