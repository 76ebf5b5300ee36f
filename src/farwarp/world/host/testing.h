// Hooks for tests of farwarp itself. Not installed.
#pragma once

#include <cstdint>
#include <memory>

#include "farwarp/world/host/world.h"

namespace farwarp::testing {

/// Collective: World::create() on a device that the test has made, instead of `options.device`.
Result<World> create_world(std::shared_ptr<Bootstrap> bootstrap, const WorldOptions& options,
                           std::shared_ptr<Device> device);

/// Worlds created from now on in this process give their first operator this epoch (even, not 0). An epoch near 2^32
/// lets a test see tags wrap. It must be the same on all ranks, or World::create returns kMismatch.
void set_first_epoch(std::uint32_t epoch);

}  // namespace farwarp::testing
