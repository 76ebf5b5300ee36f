// Times of calls on a device, taken in the rank's process.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "farwarp/harness/timing.h"
#include "farwarp/judge/frames.h"
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
  /// Collective. Of this rank, in a stream that is held for `hold_ns`. `afterwards` is enqueued behind the end of the
  /// time. The emulator has no time: 0.
  Result<Answer> time(const harness::Work& work, const harness::Work& afterwards, std::uint64_t hold_ns);
  /// Collective. The same without a hold: the work may wait for the device, and the host's part is in the time.
  Result<Answer> time_with_host(const harness::Work& work);
  /// Enqueues a copy of device memory, whole vectors of 16 bytes.
  Status copy(void* to, const void* from, std::size_t bytes) const;
  /// Waits for all that this process has enqueued on the device, in any stream.
  Status finish();

 private:
  CallClock() = default;
  Status prepare();
  std::shared_ptr<Device> device_;
  Stream stream_;
  std::unique_ptr<World> world_;
  std::unique_ptr<harness::DeviceTimer> timer_;
  Kernel copying_;
};

}  // namespace farwarp::judge
