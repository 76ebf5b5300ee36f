// Stamps of time inside kernels. They exist in emulated kernels, where a trace may be asked for at any time, and in
// kernels for GPUs if the build option FARWARP_TRACE is on. In other builds every function here is empty, and kernels
// have the same machine code as without the calls.
#pragma once

#include <cstdint>

#include "farwarp/base/attributes.h"
#include "farwarp/base/trace.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE int lane_index();  // device.h

#if defined(FARWARP_TRACE) || defined(FARWARP_TARGET_EMU_SM90) || defined(FARWARP_TARGET_EMU_GFX942)
inline constexpr bool kTraced = true;
struct TraceStart {
  std::uint64_t time;
};
#else
inline constexpr bool kTraced = false;
struct TraceStart {};
#endif

/// [thread] The beginning of a piece of work.
FARWARP_DEVICE TraceStart trace_start();
/// [thread] Its end: `record`, whose times and lane are filled in, is written. Orders nothing.
FARWARP_DEVICE void trace_end(TraceStart start, TraceRecord record);
/// [thread] True on one of the threads of the warp that are together here; on the emulator on lane 0.
FARWARP_DEVICE bool trace_chosen();

/// [thread] Whether the time since `start` is longer than a wait takes whose condition holds already.
FARWARP_DEVICE bool trace_waited(TraceStart start);

/// [thread] Work on the tile, row or task `number`.
FARWARP_DEVICE void trace_work(TraceStart start, TraceWork work, std::int64_t number) {
  if constexpr (kTraced) trace_end(start, {.where = static_cast<std::uint64_t>(number), .work = work});
}

/// [warp] The same, recorded once.
FARWARP_DEVICE void trace_warp(TraceStart start, TraceWork work, std::int64_t number) {
  if (kTraced && lane_index() == 0) trace_work(start, work, number);
}

}  // namespace farwarp::FARWARP_TARGET
