// Shapes of a suite made small enough for the emulator.
#pragma once

#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

/// The smallest problem of this form: every owner of rows still has two tiles of 64, every rank two tiles of 128 columns and
/// three steps of K, and the tails, what remains beside whole tiles and steps, stay what they are. Up to 64 rows are kept, and so
/// is what is small already.
ParallelGemmDesc scaled_down(Kind kind, const ParallelGemmDesc& desc, int ranks);

}  // namespace farwarp::parallel_gemm
