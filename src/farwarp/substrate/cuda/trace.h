// What gpu_trace.h needs of the target.
#pragma once

#include "farwarp/substrate/device.h"

#if defined(FARWARP_TRACE)

extern "C" {
__constant__ farwarp::TraceBuffer farwarp_trace;
}

namespace farwarp::FARWARP_TARGET {

/// [thread] The number of records of the thread's warp so far.
FARWARP_DEVICE Shared<std::uint32_t> trace_counter() {
  __shared__ std::uint32_t counters[1024 / Target::kWarpSize];
  return Shared<std::uint32_t>(counters + warp_index());
}

FARWARP_DEVICE bool trace_chosen() { return lane_index() == __ffs(static_cast<int>(__activemask())) - 1; }

}  // namespace farwarp::FARWARP_TARGET

#endif
