#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE TraceStart trace_start() { return {emu::trace_time()}; }

FARWARP_DEVICE void trace_end(TraceStart start, TraceRecord record) {
  if (start.time != 0) emu::trace_end(start.time, record);
}

FARWARP_DEVICE bool trace_chosen() { return lane_index() == 0; }

}  // namespace farwarp::FARWARP_TARGET
