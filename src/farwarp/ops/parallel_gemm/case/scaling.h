// Makes the shapes of a suite small enough for the emulator.
#pragma once

#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

/// The smallest problem of this form. Every owner still has two tiles of 64 rows, every rank two tiles of 128 columns
/// and three steps of K. The remainders after whole tiles and steps stay the same. Up to 64 rows, and sizes that are
/// small already, are kept.
ParallelGemmDesc scaled_down(Kind kind, const ParallelGemmDesc& desc, int ranks);

}  // namespace farwarp::parallel_gemm
