// The oracle of flash-decode: one row of attention in float64, with what roundings allow. It shares no code with the
// kernels.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/harness/rounding.h"

namespace farwarp::decode {

/// The keys that a query token sees, on all ranks, in any order. Both functions write head_dim numbers, scaled.
struct SeenKeys {
  int count = 0;
  std::function<void(int key, std::span<double> values)> k, v;
  /// Whether it is its rank's only key: its probability is 1 there. Null: of none.
  std::function<bool(int key)> is_alone = nullptr;
};

struct RowProblem {
  DType dtype = DType::kBf16;
  std::vector<double> q;       ///< [head_dim]
  double scale = 1;            ///< of q * k
  std::optional<double> sink;  ///< a logit
  SeenKeys seen;
};

struct ExpectedRow {
  std::vector<harness::ExpectedElement> out;  ///< [head_dim]
  double scale_variance = 0;                  ///< of sum (error * value) over out, by probabilities that are rounded
  double lse = 0;                             ///< natural logarithm; minus infinity if nothing is seen
  double lse_error = 0;                       ///< the largest that a right result may have
};

/// Bounds for a kernel that computes scores in fp32, exponentials by exp2 relative to a running maximum, rounds them to
/// `dtype` before they are multiplied by v, adds in fp32 and rounds once more.
ExpectedRow expected_row(const RowProblem& problem);

}  // namespace farwarp::decode
