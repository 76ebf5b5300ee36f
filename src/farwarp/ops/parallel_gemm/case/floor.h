// The least time that a parallel product can take on a machine: what must be multiplied, read and written, and sent.
#pragma once

#include "farwarp/harness/case.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

/// Of one rank.
struct Cost {
  double flops = 0;
  double memory_bytes = 0;  ///< x, w and y of this rank, each once
  double link_bytes = 0;    ///< sent; of an all-reduce as a reduce-scatter and an all-gather
};
Cost cost_of(Kind kind, const ParallelGemmDesc& desc, int ranks);

/// The slowest resource. All is 0 if the ceilings say nothing.
harness::Floor floor_of(Kind kind, const ParallelGemmDesc& desc, int ranks, const Ceilings& ceilings);

}  // namespace farwarp::parallel_gemm
