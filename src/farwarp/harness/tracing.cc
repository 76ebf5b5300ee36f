#include "farwarp/harness/tracing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "farwarp/harness/trace_json.h"
#include "farwarp/world/host/clock_exchange.h"

namespace farwarp::harness {
namespace {

TraceCollector* the_collector = nullptr;

HeapPlace place_in(const World& world, std::uint64_t address) {
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto first = reinterpret_cast<std::uint64_t>(world.view().heap[rank]);
    if (address >= first && address - first < world.options().heap_bytes) return {rank, address - first};
  }
  return {};
}

/// What a rank tells the others of its clock.
struct RankClock {
  std::uint64_t origin;  // DeviceTrace::origin
  double offset;         // ClockOffset::ns
  double first;          // first_time()
};

/// Collective: the first time of all ranks, as this rank counts. Ranks that have recorded nothing do not count.
Result<double> agree_on_origin(World& world, const RankClock& mine) {
  std::vector<std::byte> bytes(sizeof(mine));
  std::memcpy(bytes.data(), &mine, sizeof(mine));
  const auto all = world.bootstrap().allgather(bytes, std::chrono::seconds(60));
  if (!all.ok()) return all.status();
  double origin = std::numeric_limits<double>::infinity();
  for (const auto& each : *all) {
    RankClock theirs{};
    std::memcpy(&theirs, each.data(), sizeof(theirs));
    const auto apart = static_cast<double>(static_cast<std::int64_t>(theirs.origin - mine.origin));
    origin = std::min(origin, theirs.first + apart - theirs.offset + mine.offset);
  }
  return std::isfinite(origin) ? origin : 0.0;
}

/// Collective.
Status collect(World& world, DeviceTrace trace, const ClockOffset& clock) {
  const auto origin = agree_on_origin(world, {trace.origin, clock.ns, first_time(trace)});
  if (!origin.ok()) return origin.status();
  RankTrace rank;
  rank.rank = world.rank();
  rank.device = world.device().name();
  rank.emulated = is_emulated(world.device().target());
  rank.trace = std::move(trace);
  rank.origin = *origin;
  rank.place_of = [&](std::uint64_t address) { return place_in(world, address); };
  rank.site_name = [&](int slot, int site) { return world.wait_name(slot, site); };
  rank.step_name = [&](int slot, std::uint64_t step) { return world.step_name(slot, step); };
  the_collector->add(events_of(rank));
  std::lock_guard lock(the_collector->mutex);
  the_collector->clock_error_ns = std::max(the_collector->clock_error_ns, rank.trace.clock_error + clock.error);
  for (const TracedLaunch& launch : rank.trace.launches) the_collector->dropped += launch.dropped;
  return {};
}

}  // namespace

void TraceCollector::add(std::vector<std::string> events) {
  std::lock_guard lock(mutex);
  events_.insert(events_.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
}

std::vector<std::string> TraceCollector::take() {
  std::lock_guard lock(mutex);
  return std::exchange(events_, {});
}

TraceCollector* trace_collector() { return the_collector; }
void set_trace_collector(TraceCollector* collector) { the_collector = collector; }

Status traced(World& world, Stream stream, const Work& work, const std::function<Status(const Work& work)>& run) {
  if (the_collector == nullptr) return run(work);
  Device& device = world.device();
  // The emulator's devices share a clock, and a trace must not change its schedule.
  Result<ClockOffset> clock = ClockOffset{};
  if (!is_emulated(device.target())) clock = exchange_clocks(world, stream);
  if (!clock.ok()) return clock.status();
  // Once before, so that the recorded launches need not wait for the room of their records.
  Status ready = device.start_trace(stream);
  if (ready.ok()) ready = device.stop_trace(stream);
  if (const Status all = world.agree("start_trace", 1, ready); !all.ok()) return all;
  const Status status = run([&] {
    Status done = device.start_trace(stream);
    if (done.ok()) done = work();
    const Status stopped = device.stop_trace(stream);
    return done.ok() ? stopped : done;
  });
  auto trace = device.take_trace();
  if (!trace.ok()) return status.ok() ? trace.status() : status;
  const Status collected = collect(world, std::move(*trace), *clock);
  return status.ok() ? collected : status;
}

}  // namespace farwarp::harness
