// The plan of gemm-rs. Pure: no device, no World.
#pragma once

#include <string>

#include "farwarp/ops/parallel_gemm/gemm_reduce/plan.h"

namespace farwarp {

struct GemmReduceScatterPlan : gemm_reduce::Plan {
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<GemmReduceScatterPlan> plan_gemm_reduce_scatter(const ParallelGemmDesc& desc, const MachineShape& shape,
                                                       int ranks);

}  // namespace farwarp
