#include "farwarp/world/host/device_barrier.h"

#include "farwarp/world/barrier_args.h"

namespace farwarp {

Result<DeviceBarrier> DeviceBarrier::create(World& world) {
  auto kernel = world.device().kernel("world_barrier");
  // A rank without the kernel takes part with a configuration of its own, so that the others are told.
  const auto slot = world.open_operator("barrier", {"barrier"}, kernel.ok() ? 1 : 0);
  if (slot.ok() && !kernel.ok()) (void)world.close_operator(*slot);
  if (!kernel.ok()) return kernel.status();
  if (!slot.ok()) return slot.status();
  const auto cells = world.allocate(2 * sizeof(std::uint64_t) * static_cast<std::size_t>(world.size()));
  if (!cells.ok()) {
    (void)world.close_operator(*slot);
    return cells.status();
  }
  return DeviceBarrier(world, *slot, *cells, *kernel);
}

Status DeviceBarrier::close() {
  const Status closed = world_->close_operator(slot_);
  const Status freed = world_->free(cells_);
  return closed.ok() ? freed : closed;
}

Status DeviceBarrier::enqueue(Stream stream) {
  const BarrierArgs args{world_->view(), static_cast<std::uint32_t>(slot_), static_cast<std::int64_t>(cells_.offset)};
  return launch(world_->device(), kernel_, {1, kBarrierThreads, 0}, args, stream);
}

}  // namespace farwarp
