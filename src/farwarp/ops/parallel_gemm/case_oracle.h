// The oracle of parallel products: float64 on the host, of a sample of one rank's y, from the rows of x and w that it needs.
#pragma once

#include <vector>

#include "farwarp/ops/gemm/reference.h"
#include "farwarp/ops/parallel_gemm/case_inputs.h"

namespace farwarp::parallel_gemm {

/// Rows and columns of `rank`'s y that are compared; other calls, other places. All of them with few enough products, else one
/// of each band of 64 rows, within the rows of one owner, and of each band of 8 columns; all rows of an owner that has fewer
/// than 64. An all-reduce owes every rank all rows, which is R times as much to compute: there an owner of fewer than 64 rows
/// counts as a band, and bands may get 64 columns wide.
gemm::Sample choose_sample(const Problem& problem, int call, int rank);

/// [rows of the sample][columns of the sample]
struct Expected {
  std::vector<double> values, magnitudes;
};
Expected expected_of(const Problem& problem, int call, int rank, const gemm::Sample& sample);

}  // namespace farwarp::parallel_gemm
