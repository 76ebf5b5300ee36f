#include "farwarp/world/host/device_barrier.h"

#include "farwarp/world/barrier_args.h"

namespace farwarp {

Result<DeviceBarrier> DeviceBarrier::create(World& world) {
  static constexpr const char* kSiteNames[] = {"barrier"};
  auto opened =
      OpenedOperator::open(world, {.name = "barrier",
                                   .site_names = kSiteNames,
                                   .configuration = 1,
                                   .kernels = {"world_barrier"},
                                   .buffers = {{static_cast<std::int64_t>(sizeof(std::uint64_t)) * 2 * world.size()}}});
  if (!opened.ok()) return opened.status();
  return DeviceBarrier(world, std::move(*opened));
}

Status DeviceBarrier::close() { return opened_.close(); }

Status DeviceBarrier::enqueue(Stream stream) {
  if (!opened_.is_open()) return {StatusCode::kMisuse, "DeviceBarrier was called after close(), or was moved from"};
  if (Status usable = world_->check_usable(); !usable.ok()) return usable;
  const BarrierArgs args{world_->view(), opened_.slot(), static_cast<std::int64_t>(opened_.buffer(0).offset)};
  return launch(world_->device(), opened_.kernel(0), {1, kBarrierThreads, 0}, args, stream);
}

}  // namespace farwarp
