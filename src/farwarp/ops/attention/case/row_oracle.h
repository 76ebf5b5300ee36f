// One row of an attention in float64, and how far roundings may take a right result from it.
#pragma once

#include <vector>

#include "farwarp/harness/rounding.h"
#include "farwarp/ops/attention/case/inputs.h"

namespace farwarp::attention {

struct RightRow {
  std::vector<harness::ExpectedElement> out;
  double lse = 0;        ///< minus infinity if the query sees nothing and has no sink
  double lse_error = 0;  ///< the largest of a right one
};

/// Computes rows of one call; keeps its memory from row to row.
class RowOracle {
 public:
  explicit RowOracle(const Inputs& inputs);
  /// `rows`: that are compared together.
  const RightRow& row(int b, int head, int query, int rows);

 private:
  void read_logits(int b, int head, int query, const Seen& seen);
  void add_values(int b, int head, const Seen& seen);
  void allow_roundings(int keys, int rows);

  const Inputs& inputs_;
  const AttentionDesc& desc_;
  double scale_;
  std::vector<float> decoded_;  ///< the number of each pattern of the dtype
  std::vector<std::uint16_t> bits_;
  std::vector<double> query_;
  std::vector<double> logits_, errors_;             ///< of the keys seen; how far a kernel's logit may be off
  double most_ = 0;                                 ///< of the logits and the sink
  double denominator_ = 0;                          ///< relative to exp(most_)
  std::vector<double> moved_, squares_;             ///< of each column
  std::vector<harness::WeightedErrors> roundings_;  ///< of each column
  double moved_weight_ = 0;
  RightRow right_;
};

/// The error of a fp32 logarithm of a denominator that is off by `relative`.
double logarithm_error(double lse, double relative);

}  // namespace farwarp::attention
