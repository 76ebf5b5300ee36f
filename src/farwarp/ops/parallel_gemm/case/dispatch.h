// The dispatcher as a CaseOperator, for the check that all parallel products share.
#pragma once

#include <memory>

#include "farwarp/ops/parallel_gemm/case/operator.h"

namespace farwarp::parallel_gemm {

/// Collective. Errors are those of ParallelGemm::create().
Result<std::unique_ptr<CaseOperator>> create_dispatched(World& world, Kind kind, const ParallelGemmDesc& desc,
                                                        Path path);

}  // namespace farwarp::parallel_gemm
