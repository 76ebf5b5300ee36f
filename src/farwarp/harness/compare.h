// Is a result right? Every element written, a relative Frobenius error that rounding explains, and no single element off by
// more than its own rounding bound.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "farwarp/base/half.h"

namespace farwarp::harness {

/// Outputs are filled with this byte before a call. The pattern it makes is a NaN that no conversion of farwarp produces
/// (those give 0x7fff), so an element that still holds it was never written.
inline constexpr std::uint8_t kPoisonByte = 0xff;
inline constexpr std::uint16_t kPoison16 = 0xffff;

/// Half the distance from 1 to the next number: the relative error of one rounding to nearest. 2^-11 for fp16, 2^-8 for bf16.
double unit_roundoff(DType dtype);
/// Below it, rounding errors stop shrinking with the value: they are at most unit_roundoff * smallest_normal.
double smallest_normal(DType dtype);

struct Verdict {
  bool pass = false;
  std::string detail;  ///< empty, or the first thing that is wrong
  double rel_err = 0;
  double max_scaled_err = 0;
};

/// Collects the errors of one result, row by row.
class Comparison {
 public:
  explicit Comparison(DType dtype) : dtype_(dtype) {}

  /// `magnitude[i]` is the sum of |terms| of element i: what its rounding errors are proportional to, also where terms cancel.
  void add(std::span<const std::uint16_t> got, std::span<const double> expected, std::span<const double> magnitude);

  /// `roundings`: how often, at most, a term is rounded to the dtype on its way into the result.
  ///
  /// One rounding errs by at most eps * |value|, so n of them by n * eps * magnitude, and the fp32 accumulation between them
  /// by about terms * 2^-24 * magnitude: below 0.1 * eps * magnitude up to 800 terms in fp16. Hence the bound on
  /// max_scaled_err is n + 0.1, and nothing right exceeds it. Independent roundings have a root mean square of at most
  /// eps / sqrt(3) each, sqrt(n / 3) * eps together; rel_err is allowed twice that.
  Verdict verdict(int roundings) const;

 private:
  DType dtype_;
  std::int64_t elements_ = 0;
  std::int64_t unwritten_ = 0;
  std::int64_t first_unwritten_ = -1;
  double error_squares_ = 0;
  double expected_squares_ = 0;
  double magnitude_squares_ = 0;
  double max_scaled_err_ = 0;
  std::int64_t worst_ = -1;
  float worst_got_ = 0;
  double worst_expected_ = 0;
};

/// What the AMD Developer Challenge 2025 asks: elements with |got - expected| > atol + rtol * |expected|. Shown beside our own
/// verdict, never used for it: on inputs of +-0.01 it accepts results that lack most ranks' contributions.
std::int64_t count_outside(std::span<const double> got, std::span<const double> expected, double rtol, double atol);

}  // namespace farwarp::harness
