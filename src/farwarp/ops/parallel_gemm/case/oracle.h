// Describes a parallel product for the judges of products (gemm/case/oracle.h).
#pragma once

#include "farwarp/ops/gemm/case/oracle.h"
#include "farwarp/ops/parallel_gemm/case/inputs.h"

namespace farwarp::parallel_gemm {

/// The rows and columns of `rank`'s y that are compared; they differ from call to call. All of them in small problems.
/// Else one row of each group of at most 64 rows of one owner, and one column of each group of at most 8; all rows of
/// an owner with fewer than 64. In an all-reduce every rank has all rows, R times as much to compute. There fewer than
/// 64 rows of an owner are one group, and groups may be 64 columns wide.
gemm::Sample choose_sample(const Problem& problem, int call, int rank);

/// `rank`'s y in `call`. `roundings`: how often, at most, the path rounds a term to the dtype before it is in y,
/// including the last rounding. The result refers to `problem`, which must outlive it.
gemm::SumOfProducts product_of(const Problem& problem, int call, int rank, int roundings);

}  // namespace farwarp::parallel_gemm
