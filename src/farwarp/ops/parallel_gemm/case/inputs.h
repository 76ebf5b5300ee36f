// What the check of parallel products feeds them. Every row has a random stream of its own, so that any row of any rank can be
// made without the rest: no rank ever holds another one's matrices.
#pragma once

#include <cstdint>
#include <span>

#include "farwarp/ops/gemm/case/inputs.h"
#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

/// One product of all ranks, and where its numbers come from.
struct Problem {
  Kind kind = Kind::kAllGather;
  ParallelGemmDesc desc;
  int ranks = 1;
  std::uint64_t seed = 0;
  gemm::InputKind inputs = gemm::InputKind::kAuto;
  LocalShape local() const { return local_shape(kind, desc, ranks); }
};

using gemm::Operand;

/// Row `row` of what `rank` has in `call`. A bias is one row; where sums are reduced it is the same on all ranks.
void fill_row(const Problem& problem, Operand operand, int call, int rank, int row, std::span<std::uint16_t> values);

/// How long `rank` waits before `call` when it is made for the `repeat`-th time: up to `longest`.
std::uint64_t delay_before(const Problem& problem, int call, int repeat, int rank, std::uint64_t longest);

}  // namespace farwarp::parallel_gemm
