// A model of rounding: how far a right result may be from the exact one.
//
// Kernels multiply 16-bit numbers, add the products in fp32 and round sums to 16 bits: once for the result and, where ranks add
// their sums, once more for each sum that crosses a link. To nearest, such a rounding errs by at most half the distance h between
// neighbouring numbers.
#pragma once

#include <span>

#include "farwarp/base/half.h"

namespace farwarp::harness {

/// Half the distance between the neighbouring numbers of `dtype` (kF16, kBf16 or kF32) at |value|; at a power of two, above it.
double half_ulp(DType dtype, double value);

/// One rank's sum of products for one element, before any rounding.
struct PartialSum {
  double value = 0;
  double squares = 0;  ///< sum of the squared products
};

/// How far fp32 accumulation of `terms` products may take a sum: 2^-22 * (terms / 16) * (|value| / 2 + 2 * sqrt(squares)).
/// A matrix unit adds 16 products a step and truncates; |value| / 2 is where the sum is on average, sqrt(squares) how far it
/// strays. `farwarp check gemm --set residue=centred` shows which share of this a device uses.
double accumulation_error(const PartialSum& sum, int terms);

/// Which sums a path rounds to the dtype, besides the result.
struct Roundings {
  bool partial_sums = false;  ///< each rank's, before they are added
  int running_sums = 0;       ///< sums of several ranks' sums, in an unknown order: what libraries do
};

/// One element: its exact value, and what the roundings before the last may add to it.
struct ExpectedElement {
  double value = 0;
  double rounded = 0;          ///< largest error by roundings to the dtype
  double rounded_squares = 0;  ///< sum of their squares
  double accumulated = 0;      ///< largest error by fp32 arithmetic
  double predicted = 0;        ///< the error of a right result, where its terms are so few that it is known; else 0

  /// Adds a term that fp32 arithmetic gives with this error and that is rounded to `dtype`.
  void add_rounded(DType dtype, double term, double error);
  /// Adds a term that stays in fp32.
  void add(double term, double error);

  /// The largest difference that a right result has from `value`.
  double largest_error(DType dtype) const;
  /// The mean square of that difference, over many elements like this one whose terms lie anywhere between two numbers.
  double mean_square_error(DType dtype) const;
};

/// An element that is the sum of all ranks' `sums`, each of `terms` products.
ExpectedElement expected_element(DType dtype, const Roundings& roundings, std::span<const PartialSum> sums, int terms);

}  // namespace farwarp::harness
