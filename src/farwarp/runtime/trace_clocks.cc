#include "farwarp/runtime/trace_clocks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "farwarp/base/sizes.h"

namespace farwarp {
namespace {

/// A multiprocessor's clock. Doubles hold 53 bits and counters have more, so both count from a first stamp.
struct Clock {
  std::uint64_t cycles = 0, ns = 0;  ///< the first stamp that was seen
  double offset = 0;                 ///< mean distance of the stamps from the line through it, nanoseconds
  double sum = 0;
  int stamps = 0;

  double at(std::uint64_t time, double ns_per_cycle) const {
    return static_cast<double>(static_cast<std::int64_t>(time - cycles)) * ns_per_cycle + offset;
  }
};

/// Nanoseconds of a cycle; 1 if no block lasted a cycle.
double slope_of(std::span<const TraceBlock> blocks) {
  double ns = 0, cycles = 0;
  for (const TraceBlock& block : blocks) {
    if (block.end_cycles <= block.begin_cycles) continue;  // it did not end
    ns += static_cast<double>(block.end_ns - block.begin_ns);
    cycles += static_cast<double>(block.end_cycles - block.begin_cycles);
  }
  return cycles > 0 && ns > 0 ? ns / cycles : 1.0;
}

}  // namespace

void add_launch(const RawTrace& raw, DeviceTrace& trace) {
  if (trace.launches.empty() && !raw.blocks.empty()) trace.origin = raw.blocks.front().begin_ns;
  TracedLaunch& launch = trace.launches.emplace_back();
  launch.kernel = raw.kernel;
  const double slope = slope_of(raw.blocks);
  std::map<std::uint64_t, Clock> clocks;
  const auto stamp = [&](std::uint64_t multiprocessor, std::uint64_t ns, std::uint64_t cycles, const auto& use) {
    Clock& clock = clocks[multiprocessor];
    if (clock.stamps == 0 && clock.ns == 0) clock.ns = ns, clock.cycles = cycles;
    use(clock, static_cast<double>(static_cast<std::int64_t>(ns - clock.ns)) - clock.at(cycles, slope));
  };
  const auto each_stamp = [&](const auto& use) {
    for (const TraceBlock& block : raw.blocks) {
      stamp(block.multiprocessor, block.begin_ns, block.begin_cycles, use);
      if (block.end_cycles > block.begin_cycles) stamp(block.multiprocessor, block.end_ns, block.end_cycles, use);
    }
  };
  each_stamp([](Clock& clock, double distance) { clock.sum += distance, ++clock.stamps; });
  for (auto& [multiprocessor, clock] : clocks) clock.offset = clock.sum / clock.stamps;
  each_stamp([&](Clock&, double distance) { trace.clock_error = std::max(trace.clock_error, std::abs(distance)); });

  const auto time_of = [&](const TraceBlock& block, std::uint64_t cycles) {
    const Clock& clock = clocks[block.multiprocessor];
    return static_cast<double>(static_cast<std::int64_t>(clock.ns - trace.origin)) + clock.at(cycles, slope);
  };
  for (const TraceBlock& block : raw.blocks) {
    const double begin = time_of(block, block.begin_cycles);
    const bool ended = block.end_cycles > block.begin_cycles;
    launch.blocks.push_back(
        {static_cast<int>(block.multiprocessor), begin, ended ? time_of(block, block.end_cycles) : begin});
  }
  for (std::size_t warp = 0; warp < raw.blocks.size() * size(raw.warps); ++warp) {
    const std::size_t block = warp / size(raw.warps);
    launch.dropped += raw.dropped[warp];
    for (const TraceRecord& record : raw.records.subspan(warp * raw.per_warp, raw.per_warp)) {
      if (record.begin == 0) break;
      launch.events.push_back({time_of(raw.blocks[block], record.begin), record.length * slope, static_cast<int>(block),
                               static_cast<int>(warp % size(raw.warps)), record});
    }
  }
}

}  // namespace farwarp
