#include "farwarp/world/host/device_barrier.h"

#include "farwarp/world/barrier_args.h"

namespace farwarp {

Result<DeviceBarrier> DeviceBarrier::create(World& world) {
  auto kernel = world.device().kernel("world_barrier");
  auto opened =
      OpenedOperator::open(world, {.name = "barrier",
                                   .site_names = {"barrier"},
                                   .mine = kernel.status(),
                                   .configuration = 1,
                                   .buffers = {{static_cast<std::int64_t>(sizeof(std::uint64_t)) * 2 * world.size()}}});
  if (!opened.ok()) return opened.status();
  return DeviceBarrier(world, std::move(*opened), *kernel);
}

Status DeviceBarrier::close() { return opened_.close(); }

Status DeviceBarrier::enqueue(Stream stream) {
  if (!opened_.is_open()) return {StatusCode::kMisuse, "DeviceBarrier was called after close(), or was moved from"};
  if (Status usable = world_->check_usable(); !usable.ok()) return usable;
  const BarrierArgs args{world_->view(), opened_.slot(), static_cast<std::int64_t>(opened_.buffer(0).offset)};
  return launch(world_->device(), kernel_, {1, kBarrierThreads, 0}, args, stream);
}

}  // namespace farwarp
