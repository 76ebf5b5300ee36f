// Times of calls on a device, taken in the rank's process.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "farwarp/harness/timing.h"
#include "farwarp/world/host/world.h"

namespace farwarp::judge {

/// On a GPU a call is timed as bench times an operator's: cold L2, a barrier of all ranks, then a pair of events. The
/// emulator has no time: there the work is done, and the result is 0.
class CallClock {
 public:
  /// Collective.
  static Result<CallClock> create(TargetKind target, int rank, int ranks, const std::string& rendezvous);
  CallClock(CallClock&&) = default;
  Device& device() { return *device_; }
  Stream stream() const { return stream_; }
  bool on_gpu() const { return timer_ != nullptr; }
  /// Collective. Microseconds of this rank. `with_host`: the work may wait for the device, and what the host needs is
  /// part of the time.
  Result<double> time(const harness::Work& work, bool with_host);
  /// Waits for all that this process has enqueued on the device, in any stream.
  Status finish();

 private:
  CallClock() = default;
  std::shared_ptr<Device> device_;
  Stream stream_;
  std::unique_ptr<World> world_;
  std::unique_ptr<harness::DeviceTimer> timer_;
};

}  // namespace farwarp::judge
