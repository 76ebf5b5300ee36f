#include "farwarp/judge/clock.h"

#include <algorithm>
#include <utility>

#include "farwarp/harness/copy_args.h"

namespace farwarp::judge {

Result<CallClock> CallClock::create(TargetKind target, int rank, int ranks, const std::string& rendezvous) {
  constexpr std::chrono::seconds kPatience{60};
  CallClock clock;
  if (is_emulated(target)) {
    auto device = Device::open(target, rank);
    if (!device.ok()) return device.status();
    clock.device_ = std::move(*device);
    const Status status = clock.prepare();
    return status.ok() ? Result<CallClock>(std::move(clock)) : status;
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
  if (Status status = clock.prepare(); !status.ok()) return status;
  auto timer = harness::DeviceTimer::create(*clock.world_, clock.stream_);
  if (!timer.ok()) return timer.status();
  clock.timer_ = std::make_unique<harness::DeviceTimer>(std::move(*timer));
  return clock;
}

Status CallClock::prepare() {
  const auto stream = device_->create_stream();
  if (!stream.ok()) return stream.status();
  stream_ = *stream;
  const auto copying = device_->kernel("harness_copy");
  if (!copying.ok()) return copying.status();
  copying_ = *copying;
  return {};
}

Result<Answer> CallClock::time(const harness::Work& work, const harness::Work& afterwards, std::uint64_t hold_ns) {
  if (!timer_) {
    Status status = work();
    if (status.ok()) status = afterwards();
    return status.ok() ? Result<Answer>(Answer{}) : status;
  }
  const auto us = timer_->sample_once(work, afterwards, hold_ns);
  if (!us.ok()) return us.status();
  return Answer{.status = {}, .us = us->value_or(0), .late = !us->has_value()};
}

Result<Answer> CallClock::time_with_host(const harness::Work& work) {
  if (!timer_)
    return time(
        work, [] { return Status(); }, 0);
  const auto us = timer_->sample_with_host(work);
  return us.ok() ? Result<Answer>(Answer{.status = {}, .us = *us}) : us.status();
}

Status CallClock::copy(void* to, const void* from, std::size_t bytes) const {
  const harness::CopyArgs args{static_cast<const Vec16*>(from), static_cast<Vec16*>(to),
                               static_cast<std::int64_t>((bytes + sizeof(Vec16) - 1) / sizeof(Vec16))};
  const std::int64_t most = 2 * device_->shape().multiprocessors, blocks = args.count / harness::kCopyThreads + 1;
  return launch(*device_, copying_, {static_cast<int>(std::min(most, blocks)), harness::kCopyThreads, 0}, args,
                stream_);
}

Status CallClock::finish() {
  constexpr std::uint64_t kLongestNs = 20'000'000'000;
  const Status all = device_->synchronize_all(kLongestNs);
  return all.ok() ? device_->synchronize(stream_, kLongestNs) : all;  // which says whether a kernel has failed
}

}  // namespace farwarp::judge
