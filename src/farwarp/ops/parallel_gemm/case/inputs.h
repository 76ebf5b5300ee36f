// The inputs that the check of parallel products uses. Every row has its own random stream, so any row of any rank can
// be made without the others, and no rank has to hold another rank's matrices.
#pragma once

#include <cstdint>
#include <span>

#include "farwarp/ops/gemm/case/inputs.h"
#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

/// One product of all ranks, and the seed and kind of its inputs.
struct Problem {
  Kind kind = Kind::kAllGather;
  ParallelGemmDesc desc;
  int ranks = 1;
  std::uint64_t seed = 0;
  gemm::InputKind inputs = gemm::InputKind::kAuto;
  LocalShape local() const { return local_shape(kind, desc, ranks); }
};

using gemm::Operand;

/// Row `row` of `rank`'s operand in `call`. A bias is one row; it is the same on all ranks if sums are reduced.
void fill_row(const Problem& problem, Operand operand, int call, int rank, int row, std::span<std::uint16_t> values);

/// The random delay of `rank` before repetition `repeat` of `call`, at most `longest`, in the unit of `longest`.
std::uint64_t delay_before(const Problem& problem, int call, int repeat, int rank, std::uint64_t longest);

}  // namespace farwarp::parallel_gemm
