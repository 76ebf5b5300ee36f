// A barrier of all ranks' streams, without the host.
#pragma once

#include "farwarp/base/status.h"
#include "farwarp/world/host/opened_operator.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Move-only. What follows it in a rank's stream starts when every rank's stream has reached it, and sees everything
/// that those streams have written before it.
class DeviceBarrier {
 public:
  /// Collective. The World must outlive it.
  static Result<DeviceBarrier> create(World& world);
  /// Collective; the streams that used it must be idle. Like every call, kMisuse if it was closed or moved from.
  Status close();

  /// Asynchronous, can be captured. All ranks make the same number of calls; one in flight per instance.
  Status enqueue(Stream stream);

 private:
  DeviceBarrier(World& world, OpenedOperator opened) : world_(&world), opened_(std::move(opened)) {}

  World* world_;
  OpenedOperator opened_;
};

}  // namespace farwarp
