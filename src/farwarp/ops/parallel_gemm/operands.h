// What every parallel product asks of the pointers it is called with.
#pragma once

#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

/// kInvalidArgument names the pointer: 16-byte aligned device pointers, and `bias` null exactly if the Desc has none.
Status check_operands(const ParallelGemmDesc& desc, const void* x, const void* w, const void* bias, const void* y);

}  // namespace farwarp::parallel_gemm
