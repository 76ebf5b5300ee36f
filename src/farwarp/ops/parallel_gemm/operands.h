// What every parallel product asks of the pointers it is called with.
#pragma once

#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

inline constexpr int kAlignment = 16;          // of a vector access
inline constexpr int kUnfusedAlignment = 256;  // what cuBLASLt's heuristic assumes

/// kInvalidArgument names the pointer: device pointers that are multiples of `alignment`, and `bias` null exactly if the Desc has none.
Status check_operands(const ParallelGemmDesc& desc, const void* x, const void* w, const void* bias, const void* y,
                      int alignment = kAlignment);

/// kInvalidArgument names it: as the others where ParallelGemmDesc::return_x is set, else null.
Status check_returned_x(const ParallelGemmDesc& desc, const void* all_x, int alignment = kAlignment);

}  // namespace farwarp::parallel_gemm
