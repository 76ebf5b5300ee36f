#include "farwarp/harness/compare.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "farwarp/harness/inputs.h"

namespace farwarp::harness {
namespace {

// |error| in units of eps * magnitude. A result that is not finite, or off where nothing may round, is infinitely wrong.
double scaled_error(double error, double unit) {
  if (error == 0) return 0;
  if (!std::isfinite(error) || unit == 0) return std::numeric_limits<double>::infinity();
  return error / unit;
}

}  // namespace

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 0x1p-11;
    case DType::kBf16: return 0x1p-8;
    case DType::kF32: return 0x1p-24;
    default: return 0;
  }
}

double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 0x1p-14;
    case DType::kBf16:
    case DType::kF32: return 0x1p-126;
    default: return 0;
  }
}

void Comparison::add(std::span<const std::uint16_t> got, std::span<const double> expected,
                     std::span<const double> magnitude) {
  const double eps = unit_roundoff(dtype_);
  for (std::size_t i = 0; i < expected.size(); ++i, ++elements_) {
    expected_squares_ += expected[i] * expected[i];
    magnitude_squares_ += magnitude[i] * magnitude[i];
    if (got[i] == kPoison16) {
      if (unwritten_++ == 0) first_unwritten_ = elements_;
      continue;
    }
    const float value = decode(dtype_, got[i]);
    const double error = std::abs(static_cast<double>(value) - expected[i]);
    error_squares_ += error * error;
    const double scaled = scaled_error(error, eps * magnitude[i]);
    if (scaled > max_scaled_err_) {
      max_scaled_err_ = scaled;
      worst_ = elements_;
      worst_got_ = value;
      worst_expected_ = expected[i];
    }
  }
}

Verdict Comparison::verdict(int roundings) const {
  Verdict verdict;
  verdict.max_scaled_err = max_scaled_err_;
  if (error_squares_ != 0) verdict.rel_err = std::sqrt(error_squares_ / expected_squares_);
  const double scaled_allowed = roundings + 0.1;
  const double rel_allowed = expected_squares_ == 0 ? 0
                                                    : 2 * std::sqrt(roundings / 3.0) * unit_roundoff(dtype_) *
                                                          std::sqrt(magnitude_squares_ / expected_squares_);
  if (unwritten_ != 0) {
    verdict.detail =
        fmt::format("{} of {} elements were not written, the first is {}", unwritten_, elements_, first_unwritten_);
  } else if (!(max_scaled_err_ <= scaled_allowed)) {
    verdict.detail =
        fmt::format("element {} is {}, expected {:.6g}: off by {:.4g} times eps * sum|terms|, allowed is {:.4g}",
                    worst_, worst_got_, worst_expected_, max_scaled_err_, scaled_allowed);
  } else if (!(verdict.rel_err <= rel_allowed)) {
    verdict.detail = fmt::format("relative error {:.4g}, allowed is {:.4g}", verdict.rel_err, rel_allowed);
  }
  verdict.pass = verdict.detail.empty();
  return verdict;
}

std::int64_t count_outside(std::span<const double> got, std::span<const double> expected, double rtol, double atol) {
  std::int64_t outside = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    outside += !(std::abs(got[i] - expected[i]) <= atol + rtol * std::abs(expected[i]));
  }
  return outside;
}

}  // namespace farwarp::harness
