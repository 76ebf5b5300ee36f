// What kernels recorded of themselves (base/trace.h), as Device::take_trace() returns it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farwarp/base/trace.h"

namespace farwarp {

/// A record on the host. Times are nanoseconds of the device's clock since DeviceTrace::origin; on the emulator, steps.
struct TraceEvent {
  double begin = 0, length = 0;
  int block = 0, warp = 0;
  TraceRecord record;  ///< without its times
};

struct TracedBlock {
  int multiprocessor = 0;
  double begin = 0, end = 0;
};

struct TracedLaunch {
  std::string kernel;
  std::vector<TracedBlock> blocks;
  std::vector<TraceEvent> events;  ///< by block and warp, in the order of their ends
  std::uint64_t dropped = 0;       ///< records that found no room
};

/// The launches of one device, in the order in which they were enqueued.
struct DeviceTrace {
  std::vector<TracedLaunch> launches;
  std::uint64_t origin = 0;  ///< an integer, because a double does not hold today's nanoseconds
  double clock_error = 0;    ///< how far a time may be from the device's clock, in the same unit
};

}  // namespace farwarp
