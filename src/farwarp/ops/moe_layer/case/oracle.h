// The expected output of a MoE layer in float64, and the error that roundings may cause.
#pragma once

#include <cstdint>
#include <span>

#include "farwarp/harness/rounding.h"
#include "farwarp/ops/moe_layer/case/inputs.h"

namespace farwarp::moe_layer {

/// One token's row of the output. `experts` and `weights`: its k-slots. `x`: its row.
void expected_row(const MoeLayerDesc& desc, int ranks, const Weights& matrices, std::span<const std::int32_t> experts,
                  std::span<const float> weights, std::span<const float> x,
                  std::span<harness::ExpectedElement> expected);

}  // namespace farwarp::moe_layer
