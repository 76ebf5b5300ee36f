// A barrier of all ranks that streams meet at, without the host.
#pragma once

#include "farwarp/base/status.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// What is behind it in a rank's stream starts when every rank's stream has reached it, and sees what they have written
/// before.
class DeviceBarrier {
 public:
  /// Collective. The World must outlive it.
  static Result<DeviceBarrier> create(World& world);
  /// Collective; the streams that used it must be idle.
  Status close();

  /// Asynchronous, can be captured. All ranks make the same number of calls; one in flight per instance.
  Status enqueue(Stream stream);

 private:
  DeviceBarrier(World& world, int slot, SymmetricBuffer cells, Kernel kernel)
      : world_(&world), slot_(slot), cells_(cells), kernel_(std::move(kernel)) {}

  World* world_;
  int slot_;
  SymmetricBuffer cells_;
  Kernel kernel_;
};

}  // namespace farwarp
