// The expected output of combine, and the error that rounding may cause.
#pragma once

#include <cstdint>
#include <span>

#include "farwarp/harness/rounding.h"
#include "farwarp/ops/moe_a2a/reference.h"

namespace farwarp::moe {

/// What is rounded and returned to a token's rank.
enum class Returned : std::uint8_t {
  kOwnersSum,   ///< an owner's sum of the weighted outputs of its experts
  kEachOutput,  ///< each weighted output
};

/// One row of combine's output for the row_values() `x`: the sum over the k-slots of weight * expert_output(x). The
/// terms that return are rounded, and so is their sum. `functions`: of all experts.
void expected_row(const MoeAllToAllDesc& desc, int ranks, std::span<const std::int32_t> experts,
                  std::span<const float> weights, std::span<const float> x, std::span<const ExpertFunction> functions,
                  std::span<harness::ExpectedElement> expected, Returned returned = Returned::kOwnersSum);

}  // namespace farwarp::moe
