// The least time that a MoE all-to-all can take on a machine: what must cross the links and the memory, over their rates.
#pragma once

#include <span>

#include "farwarp/harness/case.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/moe_a2a/plan.h"
#include "farwarp/ops/moe_a2a/reference.h"

namespace farwarp::moe {

/// Of dispatch, expert and combine together: each token once to every other rank that has an expert of it, one row back;
/// the busiest rank decides. All is 0 if the ceilings do not say how fast the links are.
harness::Floor floor_of(const MoeAllToAllDesc& desc, std::span<const Routing> routings, const Ceilings& ceilings);

}  // namespace farwarp::moe
