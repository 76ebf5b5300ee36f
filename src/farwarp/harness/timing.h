// Device-side timing: what work takes on a device that the host keeps out of the way of.
//
//   stream of each rank:  held | prepare | flush L2 | wake links | barrier of all ranks | start | WORK | end
//
// The host enqueues all of it while the stream is held and looks at its own clock when it is done: a sample whose hold
// ran out before the last call was enqueued is thrown away and taken again under a longer hold. So no gap of the host's
// is ever counted. A sample is the slowest rank's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/world/host/device_barrier.h"
#include "farwarp/world/host/world.h"

namespace farwarp::harness {

/// In microseconds, over `n` samples.
struct Timing {
  double median = 0, p10 = 0, p90 = 0, min = 0;
  int n = 0;
};
/// Quantiles by linear interpolation; zeros without samples.
Timing summarise(std::vector<double> samples);

using Work = std::function<Status()>;

class DeviceTimer {
 public:
  /// Collective. `stream` and `world` must outlive it.
  static Result<DeviceTimer> create(World& world, Stream stream);
  DeviceTimer(DeviceTimer&&) = default;
  /// Collective; the stream must be idle.
  Status close();

  /// Collective. One sample, in microseconds: this rank's own. `prepare` and `work` enqueue on the stream; `prepare` is
  /// not counted. Where the host was late both are run once more, so `prepare` has to bring back what `work` begins with.
  /// kDeadline if the host never managed to enqueue everything in time.
  Result<double> sample(const Work& prepare, const Work& work, bool cold);

  /// Collective. The slowest rank's of each sample.
  Result<std::vector<double>> slowest(const std::vector<double>& mine);

 private:
  DeviceTimer(World& world, Stream stream, DeviceBarrier barrier, DeviceBuffer flush, std::unique_ptr<Event> start,
              std::unique_ptr<Event> end)
      : world_(&world),
        stream_(stream),
        barrier_(std::move(barrier)),
        flush_(std::move(flush)),
        start_(std::move(start)),
        end_(std::move(end)) {}

  Status enqueue(const Work& prepare, const Work& work, bool cold);
  Status wake_links();
  Result<bool> all_in_time(bool mine);

  World* world_;
  Stream stream_;
  std::optional<DeviceBarrier> barrier_;
  DeviceBuffer flush_;
  SymmetricBuffer waking_;  ///< written by the rank before; none where there are no links
  std::unique_ptr<Event> start_, end_;
  std::uint64_t hold_ns_ = 500'000;
};

}  // namespace farwarp::harness
