// Device-side timing: how long work takes on a device, without delays by the host.
//
//   stream of each rank:  held | prepare | flush L2 | wake links | barrier of all ranks | start | WORK | end
//
// The host enqueues everything while the stream is held, and then reads its own clock. If the hold may have ended
// before the last call was enqueued, the sample is discarded and taken again with a longer hold. So no sample contains
// a gap that the host caused. Reported times are those of the slowest rank in each sample.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/vendor/nvml.h"
#include "farwarp/world/host/device_barrier.h"
#include "farwarp/world/host/world.h"

namespace farwarp::harness {

/// In microseconds, over `n` samples.
struct Timing {
  double median = 0, p10 = 0, p90 = 0, min = 0;
  int n = 0;
  std::vector<double> samples = {};  ///< in the order in which they were taken
  std::vector<double> mhz = {};      ///< clock of the slowest rank's multiprocessors in each; empty: not known
};
/// By linear interpolation, `q` in 0..1. `sorted` has at least one element and ascends.
double quantile(const std::vector<double>& sorted, double q);
/// Quantiles; zeros without samples.
Timing summarise(std::vector<double> samples);

using Work = std::function<Status()>;

/// Of each sample the time of the slowest rank, in microseconds, and the clock of that rank.
struct Slowest {
  std::vector<double> us, mhz;
};

class DeviceTimer {
 public:
  /// Collective. `stream` and `world` must outlive it.
  static Result<DeviceTimer> create(World& world, Stream stream);
  DeviceTimer(DeviceTimer&&) = default;
  /// Collective; the stream must be idle.
  Status close();

  /// Collective. One sample of this rank, in microseconds. `prepare` and `work` enqueue on the stream; `prepare` is not
  /// timed.
  /// `cold`: the L2 holds nothing of use and nothing dirty. If the host of any rank was late, both run again, so
  /// `prepare` must restore the state that `work` starts from. kDeadline if the host is late even with the longest
  /// hold.
  Result<double> sample(const Work& prepare, const Work& work, bool cold);
  /// Collective. One try of a cold sample with this hold; nothing if a host was late. `afterwards` is enqueued behind
  /// the end of the time.
  Result<std::optional<double>> sample_once(const Work& work, const Work& afterwards, std::uint64_t hold_ns);
  /// Collective. One cold sample without a hold, for work that may wait for the device: what the host needs is part of
  /// the time.
  Result<double> sample_with_host(const Work& work);

  /// Enqueues that the L2 holds nothing of use and nothing dirty afterwards.
  Status flush_l2();
  /// Enqueues a read of this memory, so that the L2 holds as much of it as it can. `bytes`: the rest of 16 is left out.
  Status touch(const void* memory, std::size_t bytes);

  /// Collective. One more cold sample, if farwarp trace asks for it (tracing.h): `work` is recorded.
  Status trace(const Work& prepare, const Work& work);

  /// Collective. By rank.
  Result<std::vector<double>> of_all_ranks(double mine);
  /// Collective. For each sample, the time of the slowest rank.
  Result<std::vector<double>> slowest(const std::vector<double>& mine);
  /// Collective. The same with clocks. `mhz`: clock_mhz() after each sample.
  Result<Slowest> slowest(const std::vector<double>& mine, const std::vector<double>& mhz);
  /// The clock of this rank's multiprocessors when the latest sample had ended, in MHz; 0: not known.
  double clock_mhz() const { return clock_mhz_; }

 private:
  DeviceTimer(World& world, Stream stream, DeviceBarrier barrier, DeviceBuffer flush, DeviceBuffer sink,
              const Kernel& flushing, std::unique_ptr<Event> start, std::unique_ptr<Event> end)
      : world_(&world),
        stream_(stream),
        barrier_(std::move(barrier)),
        flush_(std::move(flush)),
        sink_(std::move(sink)),
        flushing_(flushing),
        start_(std::move(start)),
        end_(std::move(end)) {}

  /// Collective. One sample, and how long the slowest host needed to enqueue it.
  struct Try {
    double us = 0;
    std::uint64_t longest_ns = 0;
  };
  Result<Try> try_sample(const Work& prepare, const Work& work, const Work& afterwards, bool cold);
  Status enqueue(const Work& prepare, const Work& work, bool cold);
  Status enqueue_timed(const Work& work);
  Status wake_links();

  World* world_;
  Stream stream_;
  std::optional<DeviceBarrier> barrier_;
  DeviceBuffer flush_, sink_;
  Kernel flushing_;
  SymmetricBuffer waking_;  ///< written by the previous rank; empty where there are no links
  std::unique_ptr<Event> start_, end_;
  /// Of the next sample's first try. Equal on all ranks: links that one rank has woken would idle while another holds.
  std::uint64_t hold_ns_ = 500'000;
  std::optional<nvml::SmClock> clock_;
  double clock_mhz_ = 0;
};

}  // namespace farwarp::harness
