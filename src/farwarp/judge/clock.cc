#include "farwarp/judge/clock.h"

#include <utility>

namespace farwarp::judge {

Result<CallClock> CallClock::create(TargetKind target, int rank, int ranks, const std::string& rendezvous) {
  constexpr std::chrono::seconds kPatience{60};
  CallClock clock;
  if (is_emulated(target)) {
    auto device = Device::open(target, rank);
    if (!device.ok()) return device.status();
    clock.device_ = std::move(*device);
    return clock;
  }
  auto bootstrap = make_process_bootstrap(rank, ranks, rendezvous, kPatience);
  if (!bootstrap.ok()) return bootstrap.status();
  WorldOptions options;
  options.target = target;
  options.heap_bytes = std::size_t{4} << 20;
  auto world = World::create(std::move(*bootstrap), options);
  if (!world.ok()) return world.status();
  clock.world_ = std::make_unique<World>(std::move(*world));
  clock.device_ = clock.world_->device().shared_from_this();
  const auto stream = clock.device_->create_stream();
  if (!stream.ok()) return stream.status();
  clock.stream_ = *stream;
  auto timer = harness::DeviceTimer::create(*clock.world_, clock.stream_);
  if (!timer.ok()) return timer.status();
  clock.timer_ = std::make_unique<harness::DeviceTimer>(std::move(*timer));
  return clock;
}

Result<double> CallClock::time(const harness::Work& work, bool with_host) {
  if (timer_ && with_host) return timer_->sample_with_host(work);
  if (timer_) return timer_->sample([] { return Status(); }, work, true);
  const Status status = work();
  return status.ok() ? Result<double>(0.0) : status;
}

Status CallClock::finish() {
  constexpr std::uint64_t kLongestNs = 20'000'000'000;
  return timer_ ? device_->synchronize_all(kLongestNs) : Status();
}

}  // namespace farwarp::judge
