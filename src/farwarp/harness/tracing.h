// farwarp trace: which call of a case is recorded, and where its ranks' traces go.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/timing.h"
#include "farwarp/world/host/world.h"

namespace farwarp::harness {

/// The events of the ranks of this process.
class TraceCollector {
 public:
  void add(std::vector<std::string> events);
  std::vector<std::string> take();

  double clock_error_ns = 0;  ///< the largest of all ranks: within a device, and between devices
  std::uint64_t dropped = 0;  ///< records

  std::mutex mutex;  ///< of all members

 private:
  std::vector<std::string> events_;
};

/// The collector of this process; null unless a trace is asked for. Set it while no case runs.
TraceCollector* trace_collector();
void set_trace_collector(TraceCollector* collector);

/// Collective. Calls `run(work)`, which calls its argument once or more, each time after the launches before are done,
/// and waits for its launches. With a collector, those of the last time are recorded and added to it, also if they
/// failed. `work` enqueues on `stream`, which is idle before and after.
Status traced(World& world, Stream stream, const Work& work, const std::function<Status(const Work& work)>& run);

}  // namespace farwarp::harness
