// The least time that a parallel product can take on a machine: from the flops, the memory traffic and the link traffic
// that it needs.
#pragma once

#include "farwarp/harness/case.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

/// Of one rank.
struct Cost {
  double flops = 0;
  double memory_bytes = 0;  ///< x, w and y of this rank, each once
  double link_bytes = 0;    ///< sent; an all-reduce counts as a reduce-scatter and an all-gather
};
Cost cost_of(Kind kind, const ParallelGemmDesc& desc, int ranks);

/// The time of the slowest resource. All fields are 0 if no ceilings are known.
harness::Floor floor_of(Kind kind, const ParallelGemmDesc& desc, int ranks, const Ceilings& ceilings);

}  // namespace farwarp::parallel_gemm
