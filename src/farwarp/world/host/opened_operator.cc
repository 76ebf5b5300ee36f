#include "farwarp/world/host/opened_operator.h"

#include <utility>

namespace farwarp {

OpenedOperator& OpenedOperator::operator=(OpenedOperator&& other) noexcept {
  world_ = std::exchange(other.world_, nullptr);
  slot_ = std::exchange(other.slot_, -1);
  kernels_ = std::exchange(other.kernels_, {});
  buffers_ = std::exchange(other.buffers_, {});
  return *this;
}

Result<OpenedOperator> OpenedOperator::open(World& world, const Desc& desc) {
  if (Status usable = world.check_usable(); !usable.ok()) return usable;
  OpenedOperator opened;
  Status mine = desc.plan;
  for (std::size_t i = 0; mine.ok() && i < desc.kernels.size(); ++i) {
    auto kernel = world.device().kernel(desc.kernels[i]);
    mine = kernel.status();
    if (kernel.ok()) opened.kernels_.push_back(std::move(*kernel));
  }
  const auto slot =
      world.open_operator(desc.name, {desc.site_names.begin(), desc.site_names.end()}, desc.configuration, mine);
  if (!mine.ok()) return mine;
  if (!slot.ok()) return slot.status();
  opened.world_ = &world;
  opened.slot_ = *slot;
  for (const Buffer& wanted : desc.buffers) {
    opened.buffers_.emplace_back();
    if (wanted.bytes == 0) continue;
    const auto allocated = world.allocate(static_cast<std::size_t>(wanted.bytes), 256, wanted.fill);
    if (!allocated.ok()) {
      (void)opened.close();
      return allocated.status();
    }
    opened.buffers_.back() = *allocated;
  }
  return opened;
}

Status OpenedOperator::close() {
  if (!is_open()) return {StatusCode::kMisuse, "the operator is not open"};
  Status first = world_->close_operator(std::exchange(slot_, -1));
  for (const SymmetricBuffer& buffer : std::exchange(buffers_, {})) {
    if (buffer.bytes == 0) continue;
    const Status freed = world_->free(buffer);
    if (first.ok()) first = freed;
  }
  return first;
}

}  // namespace farwarp
