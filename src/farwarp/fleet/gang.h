// The cells by which the gang dispatcher hands out steps (gang.dev.h). In device memory, zeros before the first launch.
// Counters only grow, modulo 2^32; a launch counts on from where the one before has ended.
#pragma once

#include <cstdint>

#include "farwarp/base/machine_shape.h"

namespace farwarp::fleet {

/// A word alone in its line of any L2: an XCD's own words must not share a line with those of all XCDs.
struct alignas(128) GangWord {
  std::uint32_t word;
};

inline constexpr int kGangPlaceBytes = 32;  ///< of a worker's shared memory

struct GangCells {
  // Device scope.
  GangWord entered;            ///< blocks that have claimed a number
  GangWord claimed[kMaxXcds];  ///< the same, of an XCD
  GangWord done;               ///< XCDs whose workers have all ended a step: one for each XCD and step
  // Chiplet scope: of XCD i alone.
  GangWord started[kMaxXcds];  ///< steps that its scheduler has handed out
  GangWord arrived[kMaxXcds];  ///< workers that have ended a step: one for each worker and step
  // Plain: the first worker stores it at a launch's end.
  std::uint32_t claimed_before[kMaxXcds];  ///< `claimed` when this launch began
};

}  // namespace farwarp::fleet
