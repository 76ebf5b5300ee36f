// Stamps of time inside kernels. They exist in emulated kernels, where a trace may be asked for at any time, and in
// kernels for GPUs if the build option FARWARP_TRACE is on. In other builds every function here is empty, and kernels
// have the same machine code as without the calls.
#pragma once

#include <cstdint>

#include "farwarp/base/attributes.h"
#include "farwarp/base/trace.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE int lane_index();  // device.h

// `time` is 0 until the stamp is taken.
#if defined(FARWARP_TARGET_EMU_SM90) || defined(FARWARP_TARGET_EMU_GFX942)
struct TraceStart {
  std::uint64_t time = 0;  ///< the step of the schedule
};
inline constexpr bool kTraced = true, kInnerWaitsTraced = true;
#elif defined(FARWARP_TRACE)
struct TraceStart {
  std::uint32_t time = 0;  ///< the lower half of cycles(): one register, of which kernels have few left
};
/// Waits for a block's own mbarriers and for words are not recorded: they are in inner loops, and their stamps took 4
/// to 17% of a kernel's time (two H200s, 2026-11).
inline constexpr bool kTraced = true, kInnerWaitsTraced = false;
#else
struct TraceStart {};
inline constexpr bool kTraced = false, kInnerWaitsTraced = false;
#endif

template <class Start>
FARWARP_DEVICE bool trace_waited(const Start& start) {
  if constexpr (requires { start.time; }) {
    return start.time != 0;
  } else {
    return false;
  }
}

/// [thread] The beginning of a piece of work.
FARWARP_DEVICE TraceStart trace_start();
/// [thread] Its end: `record`, whose times and lane are filled in, is written. Orders nothing.
FARWARP_DEVICE void trace_end(TraceStart start, TraceRecord record);
/// [thread] True on one of the threads of the warp that are together here; on the emulator on lane 0.
FARWARP_DEVICE bool trace_chosen();

/// [thread] A wait's condition does not hold: the first time, its begin is taken. So waits whose condition holds at
/// the first look read no clock, and trace_waited() says so.
FARWARP_DEVICE void trace_missed(TraceStart& start) {
  if (kTraced && !trace_waited(start)) start = trace_start();
}

/// [thread] Work on the tile, row or task `number`.
FARWARP_DEVICE void trace_work(TraceStart start, TraceWork work, std::int64_t number) {
  if constexpr (kTraced) trace_end(start, {.where = static_cast<std::uint64_t>(number), .work = work});
}

/// [warp] The same, recorded once.
FARWARP_DEVICE void trace_warp(TraceStart start, TraceWork work, std::int64_t number) {
  if (kTraced && lane_index() == 0) trace_work(start, work, number);
}

}  // namespace farwarp::FARWARP_TARGET
