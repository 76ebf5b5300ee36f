// The least time that a MoE all-to-all can take on a machine: what must cross the links and the memory, over their
// rates.
#pragma once

#include <span>

#include "farwarp/harness/case.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/moe_a2a/plan.h"
#include "farwarp/ops/moe_a2a/reference.h"

namespace farwarp::moe {

/// The floor of dispatch, expert and combine together. Each token crosses once to every other rank that owns one of its
/// experts, and one row returns; the busiest rank decides. All figures are 0 if the ceilings have no rate of the links.
harness::Floor floor_of(const MoeAllToAllDesc& desc, std::span<const Routing> routings, const Ceilings& ceilings);

}  // namespace farwarp::moe
