// The clocks of the ranks' devices beside each other.
#pragma once

#include "farwarp/base/status.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// The device's clock minus rank 0's, in nanoseconds. `error` bounds how far that may be off: half of the shortest
/// round trip, from which it follows.
struct ClockOffset {
  double ns = 0;
  double error = 0;
};

/// Collective; `stream` must be idle. As D. Mills, RFC 5905, section 8: a clock that is read in the middle of a round
/// trip.
Result<ClockOffset> exchange_clocks(World& world, Stream stream);

}  // namespace farwarp
