// What the judges of products (gemm/case_oracle.h) are told of a parallel product.
#pragma once

#include "farwarp/ops/gemm/case/oracle.h"
#include "farwarp/ops/parallel_gemm/case/inputs.h"

namespace farwarp::parallel_gemm {

/// Rows and columns of `rank`'s y that are compared; other calls, other places. All of them with few enough products, else one
/// of each band of 64 rows, within the rows of one owner, and of each band of 8 columns; all rows of an owner that has fewer
/// than 64. An all-reduce owes every rank all rows, which is R times as much to compute: there an owner of fewer than 64 rows
/// counts as a band, and bands may get 64 columns wide.
gemm::Sample choose_sample(const Problem& problem, int call, int rank);

/// `rank`'s y in `call`. `roundings`: how often, at most, the path rounds a term to the dtype on its way into y, the last time
/// included. Refers to `problem`.
gemm::SumOfProducts product_of(const Problem& problem, int call, int rank, int roundings);

}  // namespace farwarp::parallel_gemm
