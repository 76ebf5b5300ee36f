// A model of rounding: how far a right result may be from the exact one.
//
// Kernels multiply 16-bit numbers, add the products in fp32 and round sums to 16 bits. They round once for the result
// and, if ranks add their sums, once more for each sum that crosses a link. Rounding to nearest makes an error of at
// most h, half the distance between neighbouring numbers.
#pragma once

#include <span>

#include "farwarp/base/half.h"

namespace farwarp::harness {

/// Half the distance between the neighbouring numbers of `dtype` (kF16, kBf16 or kF32) at |value|. At a power of two,
/// the distance to the next larger number counts.
double half_ulp(DType dtype, double value);

/// One rank's sum of products for one element, before any rounding.
struct PartialSum {
  double value = 0;
  double squares = 0;  ///< sum of the squared products
};

/// The largest error of fp32 accumulation of `terms` products: 2^-22 * (terms / 16) * (|value| / 2 + 2 *
/// sqrt(squares)). A matrix unit adds 16 products at a time and truncates. |value| / 2 is the average of the running
/// sum, sqrt(squares) its deviation. `farwarp check gemm --set residue=centred` shows which share of this bound a
/// device uses.
double accumulation_error(const PartialSum& sum, int terms);

/// The same of e4m3 numbers, whose sums of 128 products a matrix unit keeps in about 14 bits (base/fp8_sum.h): four
/// instructions, each of which cuts the sum at 2^-13 of it or of its largest product.
double short_sums_error(const PartialSum& sum);

/// Which sums a path rounds to the dtype, besides the result.
struct Roundings {
  bool partial_sums = false;  ///< each rank's, before they are added
  int running_sums = 0;       ///< how many sums of several ranks' sums, in an unknown order, as libraries do
  bool short_sums = false;    ///< of e4m3 numbers: short_sums_error()
};

/// One element: its exact value, and the errors by all roundings before the last one.
struct ExpectedElement {
  double value = 0;
  double rounded = 0;          ///< largest error by roundings to the dtype
  double rounded_squares = 0;  ///< sum of their squares
  double accumulated = 0;      ///< largest error by fp32 arithmetic
  double predicted = 0;        ///< the error of a right result, if it has so few terms that its error is known; else 0

  /// Adds a term that fp32 arithmetic computes with an error of at most `error` and that is then rounded to `dtype`.
  void add_rounded(DType dtype, double term, double error);
  /// Adds a term that stays in fp32, with an error of at most `error`.
  void add(double term, double error);

  /// The largest difference that a right result may have from `value`.
  double largest_error(DType dtype) const;
  /// The mean square of that difference over many such elements, with terms spread evenly between neighbouring numbers.
  double mean_square_error(DType dtype) const;
};

/// The largest error, and three times the mean square error, of a sum of products of exact numbers and probabilities
/// rounded to `dtype` relative to any maximum. `halves`: of a product the probability times half the distance of
/// numbers just above 1, times the exact number.
struct WeightedErrors {
  double halves = 0, squares = 0, fourths = 0;  ///< sums of them, of their squares and fourth powers
  void add(double half) {
    halves += half;
    squares += half * half;
    fourths += half * half * half * half;
  }
  /// Many roundings are not all alike: eight deviations of numbers evenly spread.
  double largest() const;
  /// A rounding is evenly spread up to half / m, with m from 1 to 2 as likely on a logarithmic scale: its square is
  /// 0.180 half^2 on average, with a deviation of 0.187 half^2. All columns of a row share the roundings, so five
  /// deviations are added, of `rows` such rows whose errors are added up.
  double mean_square(int rows = 1) const;
};

/// An element that is the sum of all ranks' `sums`, each of `terms` products.
ExpectedElement expected_element(DType dtype, const Roundings& roundings, std::span<const PartialSum> sums, int terms);

}  // namespace farwarp::harness
