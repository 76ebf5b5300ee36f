// Which mapping an attention's plan takes.
#pragma once

#include <array>
#include <iterator>

#include "farwarp/machine/cache_machine.h"
#include "farwarp/ops/attention/accesses.h"

namespace farwarp::attention {

/// Time that a mapping costs, for comparisons only.
struct MappingCost {
  Mapping mapping;
  double microseconds;  ///< of the computation, as long as the busiest XCD has it, plus of the bytes that the L2s miss
};

/// Of all mappings, in the order of kMappings, from a short and coarse simulation: some milliseconds each.
/// Deterministic.
/// check(machine) and check(shape) are ok; kInvalidArgument if not.
Result<std::array<MappingCost, std::size(kMappings)>> mapping_costs(const CacheMachine& machine,
                                                                    const PrefillShape& shape, bool folded);

/// The one that costs least; of those within 0.1% of it the first of head_first_swizzled, block_first_swizzled,
/// head_first, block_first. On a machine with one L2 it is head_first, without a simulation.
Result<Mapping> best_mapping(const CacheMachine& machine, const PrefillShape& shape, bool folded = false);

}  // namespace farwarp::attention
