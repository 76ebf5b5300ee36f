#include "farwarp/harness/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "farwarp/harness/flush_args.h"
#include "farwarp/harness/tracing.h"
#include "farwarp/vendor/cuda_driver.h"

namespace farwarp::harness {
namespace {

using Clock = std::chrono::steady_clock;

// Four times the L2 of an H200 (60 MB), and equal to the last-level cache of an MI300X (256 MB).
constexpr std::size_t kFlushBytes = std::size_t{256} << 20;
constexpr std::size_t kFlushBytesEmulated = 4096;  // the emulator has no caches
// A hold that was too short is doubled for the next try; the shortest one lasts as long as the enqueuing of most
// samples.
constexpr std::uint64_t kShortestHoldNs = 500'000, kLongestHoldNs = 200'000'000;
// NVLinks that were idle for some milliseconds take about 190 us to reach full speed again (see MEASURED.md). Barriers
// do not wake them, traffic does. The links of a service are never idle, so each sample begins with about 300 us of
// traffic.
constexpr std::size_t kWakingBytes = 256 << 10;
constexpr int kWakingFills = 100;
// Ranks prepare on the host at different speeds.
constexpr std::chrono::minutes kHostPatience{10};

/// Empty where there is no such clock, or nobody who reads it.
std::optional<nvml::SmClock> clock_of(const Device& device) {
  if (device.target() != TargetKind::kCuda) return {};
  const auto driver = cuda::Driver::open();
  char bus_id[32] = {};
  int handle = 0;
  if (!driver.ok() || (*driver)->device_get(&handle, device.ordinal()) != cuda::Error::kSuccess ||
      (*driver)->device_bus_id(bus_id, static_cast<int>(sizeof(bus_id)), handle) != cuda::Error::kSuccess)
    return {};
  const auto clock = nvml::SmClock::open(bus_id);
  return clock.ok() ? std::optional(*clock) : std::nullopt;
}

/// Lines that a kernel has marked as persisting would survive the flush (llm.c, issue 851).
Status reset_persisting_l2(Device& device) {
  if (device.target() != TargetKind::kCuda) return {};
  const auto driver = cuda::Driver::open();
  if (!driver.ok()) return driver.status();
  return device.while_current([&] { return (*driver)->call((*driver)->reset_persisting_l2); });
}

Status nothing() { return {}; }

}  // namespace

double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - std::floor(place));
}

Timing summarise(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  return {quantile(sorted, 0.5), quantile(sorted, 0.1),           quantile(sorted, 0.9),
          sorted.front(),        static_cast<int>(sorted.size()), std::move(samples)};
}

Result<DeviceTimer> DeviceTimer::create(World& world, Stream stream) {
  Device& device = world.device();
  auto barrier = DeviceBarrier::create(world);
  if (!barrier.ok()) return barrier.status();
  auto flush = DeviceBuffer::create(device, is_emulated(device.target()) ? kFlushBytesEmulated : kFlushBytes);
  if (!flush.ok()) return flush.status();
  auto sink = DeviceBuffer::create(device, sizeof(std::uint64_t));
  if (!sink.ok()) return sink.status();
  const auto flushing = device.kernel("harness_flush");
  if (!flushing.ok()) return flushing.status();
  auto start = device.create_event(), end = device.create_event();
  if (!start.ok()) return start.status();
  if (!end.ok()) return end.status();
  DeviceTimer timer(world, stream, std::move(*barrier), std::move(*flush), std::move(*sink), *flushing,
                    std::move(*start), std::move(*end));
  timer.clock_ = clock_of(device);
  if (world.size() > 1 && !is_emulated(device.target())) {
    const auto waking = world.allocate(kWakingBytes);
    if (!waking.ok()) return waking.status();
    timer.waking_ = *waking;
  }
  return timer;
}

Status DeviceTimer::enqueue(const Work& prepare, const Work& work, bool cold) {
  Device& device = world_->device();
  Status status = device.enqueue_delay(stream_, hold_ns_);
  if (status.ok()) status = prepare();
  if (status.ok() && cold) status = flush_l2();
  if (status.ok()) status = wake_links();
  if (status.ok()) status = barrier_->enqueue(stream_);
  return status.ok() ? enqueue_timed(work) : status;
}

Status DeviceTimer::enqueue_timed(const Work& work) {
  Device& device = world_->device();
  Status status = device.record(*start_, stream_);
  if (status.ok()) status = work();
  if (status.ok()) status = device.record(*end_, stream_);
  return status;
}

Result<double> DeviceTimer::sample_with_host(const Work& work) {
  Device& device = world_->device();
  const auto patience = static_cast<std::uint64_t>(2 * world_->options().deadline / std::chrono::nanoseconds(1));
  Status status = flush_l2();
  if (status.ok()) status = wake_links();
  if (status.ok()) status = barrier_->enqueue(stream_);
  if (status.ok()) status = device.synchronize(stream_, patience);
  if (status.ok()) status = enqueue_timed(work);
  if (status.ok()) status = device.synchronize(stream_, patience);
  if (status.ok()) status = world_->status();
  return status.ok() ? device.microseconds_between(*start_, *end_) : status;
}

Status DeviceTimer::flush_l2() {
  Device& device = world_->device();
  if (Status status = reset_persisting_l2(device); !status.ok()) return status;
  if (Status status = device.fill(flush_.get(), 0, flush_.bytes(), stream_); !status.ok()) return status;
  // After the fill alone, the L2 would be full of dirty lines, and the work would be slowed down by their way to
  // memory.
  return touch(flush_.get(), flush_.bytes());
}

Status DeviceTimer::touch(const void* memory, std::size_t bytes) {
  Device& device = world_->device();
  const FlushArgs args{static_cast<const Vec16*>(memory), static_cast<std::int64_t>(bytes / sizeof(Vec16)),
                       sink_.as<std::uint64_t>()};
  return launch(device, flushing_, {2 * device.shape().multiprocessors, kFlushThreads, 0}, args, stream_);
}

Status DeviceTimer::wake_links() {
  if (waking_.bytes == 0) return {};
  const int next = (world_->rank() + 1) % world_->size();
  Status status;
  for (int i = 0; i < kWakingFills && status.ok(); ++i)
    status = world_->device().fill(world_->view().heap[next] + waking_.offset, 0, waking_.bytes, stream_);
  return status;
}

Status DeviceTimer::close() {
  const Status freed = waking_.bytes > 0 ? world_->free(waking_) : Status();
  const Status closed = barrier_->close();
  return closed.ok() ? freed : closed;
}

Result<DeviceTimer::Try> DeviceTimer::try_sample(const Work& prepare, const Work& work, const Work& afterwards,
                                                 bool cold) {
  Device& device = world_->device();
  if (Status met = world_->bootstrap().barrier(kHostPatience); !met.ok()) return met;
  const Clock::time_point began = Clock::now();
  Status enqueued = enqueue(prepare, work, cold);
  if (enqueued.ok()) enqueued = afterwards();
  const std::chrono::nanoseconds taken = Clock::now() - began;
  const auto patience = std::chrono::nanoseconds(hold_ns_) + 2 * world_->options().deadline;
  const Status done = device.synchronize(stream_, static_cast<std::uint64_t>(patience.count()));
  if (!enqueued.ok()) return enqueued;
  if (const Status status = world_->status(); !status.ok()) return status;
  if (!done.ok()) return done;
  if (clock_) clock_mhz_ = clock_->mhz();
  // The emulator starts no stream while a host thread could still enqueue.
  const bool can_be_late = !is_emulated(device.target());
  const auto hosts = of_all_ranks(can_be_late ? static_cast<double>(taken.count()) : 0);
  if (!hosts.ok()) return hosts.status();
  const auto us = device.microseconds_between(*start_, *end_);
  if (!us.ok()) return us.status();
  return Try{*us, static_cast<std::uint64_t>(*std::max_element(hosts->begin(), hosts->end()))};
}

Result<double> DeviceTimer::sample(const Work& prepare, const Work& work, bool cold) {
  for (; hold_ns_ <= kLongestHoldNs; hold_ns_ *= 2) {
    const auto tried = try_sample(prepare, work, nothing, cold);
    if (!tried.ok()) return tried.status();
    if (tried->longest_ns >= hold_ns_) continue;
    // The first use of a library's kernel loads it, which may take 100 ms. Later samples need no hold of that length.
    hold_ns_ = std::clamp(2 * tried->longest_ns, kShortestHoldNs, kLongestHoldNs);
    return tried->us;
  }
  return Status{StatusCode::kDeadline,
                fmt::format("the host needs more than {} ms to enqueue one sample", kLongestHoldNs / 1'000'000)};
}

Result<std::optional<double>> DeviceTimer::sample_once(const Work& work, const Work& afterwards,
                                                       std::uint64_t hold_ns) {
  hold_ns_ = hold_ns;
  const auto tried = try_sample(nothing, work, afterwards, true);
  if (!tried.ok()) return tried.status();
  return tried->longest_ns < hold_ns ? std::optional(tried->us) : std::nullopt;
}

Status DeviceTimer::trace(const Work& prepare, const Work& work) {
  if (trace_collector() == nullptr) return {};
  return traced(*world_, stream_, work, [&](const Work& recorded) { return sample(prepare, recorded, true).status(); });
}

Result<std::vector<double>> DeviceTimer::of_all_ranks(double mine) {
  std::vector<std::byte> bytes(sizeof(mine));
  std::memcpy(bytes.data(), &mine, sizeof(mine));
  const auto all = world_->bootstrap().allgather(bytes, kHostPatience);
  if (!all.ok()) return all.status();
  std::vector<double> values;
  for (const std::vector<std::byte>& theirs : *all) {
    if (theirs.size() != sizeof(mine)) return internal_error("a rank's time cannot be read");
    std::memcpy(&values.emplace_back(), theirs.data(), sizeof(mine));
  }
  return values;
}

Result<std::vector<double>> DeviceTimer::slowest(const std::vector<double>& mine) {
  auto slow = slowest(mine, std::vector<double>(mine.size()));
  if (!slow.ok()) return slow.status();
  return std::move(slow->us);
}

Result<Slowest> DeviceTimer::slowest(const std::vector<double>& mine, const std::vector<double>& mhz) {
  std::vector<double> sent = mine;
  sent.insert(sent.end(), mhz.begin(), mhz.end());
  std::vector<std::byte> bytes(sent.size() * sizeof(double));
  std::memcpy(bytes.data(), sent.data(), bytes.size());
  const auto all = world_->bootstrap().allgather(bytes, kHostPatience);
  if (!all.ok()) return all.status();
  Slowest worst{mine, mhz};
  for (const std::vector<std::byte>& theirs : *all) {
    if (theirs.size() != bytes.size()) return internal_error("ranks took different numbers of samples");
    std::vector<double> values(sent.size());
    std::memcpy(values.data(), theirs.data(), theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (values[i] <= worst.us[i]) continue;
      worst.us[i] = values[i];
      worst.mhz[i] = values[mine.size() + i];
    }
  }
  return worst;
}

}  // namespace farwarp::harness
