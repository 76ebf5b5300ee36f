// The oracle of attention: float64, row by row, without the substrate.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace farwarp::attention {

/// One query of one head. `key(j)` and `value(j)` are the rows of key j.
struct ReferenceRow {
  std::span<const double> query;
  std::function<std::span<const double>(int)> key, value;
  int first_key = 0, end_key = 0;  ///< the keys that it sees
  double scale = 1;
  const double* sink = nullptr;  ///< null: none
  double softcap = 0;            ///< 0: none
};

struct ReferenceResult {
  std::vector<double> out;
  double lse = 0;  ///< minus infinity if nothing is seen and there is no sink
  /// The sum of probability * |value| for each column: how far roundings of probabilities can move it.
  std::vector<double> magnitude;
  double largest_logit =
      0;  ///< the largest absolute value, times scale: how far roundings of scores can move probabilities
};

ReferenceResult reference_row(const ReferenceRow& row);

}  // namespace farwarp::attention
