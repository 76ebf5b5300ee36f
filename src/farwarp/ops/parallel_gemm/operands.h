// Checks of the pointers that a parallel product is called with.
#pragma once

#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

inline constexpr int kAlignment = 16;          // of a vector access
inline constexpr int kUnfusedAlignment = 256;  // what cuBLASLt's heuristic assumes

/// kInvalidArgument names the pointer. Allowed: device pointers that are multiples of `alignment`; `bias` is null
/// exactly if the Desc has none.
Status check_operands(const ParallelGemmDesc& desc, const void* x, const void* w, const void* bias, const void* y,
                      int alignment = kAlignment);

/// kInvalidArgument names it. Allowed: a pointer as above if ParallelGemmDesc::return_x is set, else null.
Status check_returned_x(const ParallelGemmDesc& desc, const void* all_x, int alignment = kAlignment);

/// kInvalidArgument if a result shares memory with an operand, or y with `all_x`. Call it after the two above.
Status check_memory(Kind kind, const ParallelGemmDesc& desc, int ranks, const void* x, const void* w, const void* bias,
                    const void* y, const void* all_x = nullptr);

}  // namespace farwarp::parallel_gemm
