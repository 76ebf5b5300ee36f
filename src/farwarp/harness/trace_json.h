// A rank's trace as events of the trace format that Perfetto and chrome://tracing open ("Trace Event Format", Google).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "farwarp/runtime/device_trace.h"

namespace farwarp::harness {

/// Where an address of this rank lies: in the heap of `rank`, at `offset`.
struct HeapPlace {
  int rank = -1;  ///< -1: in no heap
  std::uint64_t offset = 0;
};

struct RankTrace {
  int rank = 0;
  std::string device;
  bool emulated = false;  ///< times are steps of the schedule; a step is shown as a microsecond
  DeviceTrace trace;
  double origin = 0;  ///< what is time 0, as `trace` counts
  std::function<HeapPlace(std::uint64_t address)> place_of;
  std::function<std::string(int slot, int site)> site_name;
  std::function<std::string(int slot, std::uint64_t step)> step_name;
};

/// The first time of the trace; nothing recorded: infinity.
double first_time(const DeviceTrace& trace);

/// A rank is a process; a thread each is its launches, and each warp that has recorded anything, under its block,
/// multiprocessor and the kinds of its work. Another lane of a warp that waits by itself is a thread of its own. A cell
/// that a rank puts, at a peer or at itself, begins an arrow, which ends at the first wait there that saw it. Every
/// event is one JSON object without a line break.
std::vector<std::string> events_of(const RankTrace& rank);

/// A whole file: `events` of all ranks.
std::string trace_file(const std::vector<std::string>& events, const std::string& description);

}  // namespace farwarp::harness
