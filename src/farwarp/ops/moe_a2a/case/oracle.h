// What combine's output is, and how far rounding may take it from there.
#pragma once

#include <cstdint>
#include <span>

#include "farwarp/harness/rounding.h"
#include "farwarp/ops/moe_a2a/reference.h"

namespace farwarp::moe {

/// What is rounded before it is sent back to a token's rank.
enum class Returned : std::uint8_t {
  kOwnersSum,   ///< of the weighted outputs of its experts
  kEachOutput,  ///< weighted
};

/// One row of combine's output for the row_values() `x`: the sum over the k-slots of weight * expert_output(x). What is returned is
/// rounded, and their sum. `functions`: of all experts.
void expected_row(const MoeAllToAllDesc& desc, int ranks, std::span<const std::int32_t> experts,
                  std::span<const float> weights, std::span<const float> x, std::span<const ExpertFunction> functions,
                  std::span<harness::ExpectedElement> expected, Returned returned = Returned::kOwnersSum);

}  // namespace farwarp::moe
