// From the clocks of multiprocessors, in which GPUs record, to nanoseconds of the device's clock.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "farwarp/runtime/device_trace.h"

namespace farwarp {

/// What a launch wrote to a TraceBuffer.
struct RawTrace {
  std::string kernel;
  std::span<const TraceBlock> blocks;
  int warps = 0;  ///< of a block
  std::span<const TraceRecord> records;
  std::uint32_t per_warp = 0;
  std::span<const std::uint32_t> dropped;
};

/// Appends a launch to `trace`. All multiprocessors are taken to run at one frequency, which the blocks' two pairs of
/// stamps give; each has a counter that starts anywhere, so an offset of its own: the mean of its stamps'. The largest
/// distance of a stamp from this line raises `trace.clock_error`.
void add_launch(const RawTrace& raw, DeviceTrace& trace);

}  // namespace farwarp
