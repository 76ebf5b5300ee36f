#include "farwarp/world/host/heap.h"

#include <fmt/format.h>

#include "farwarp/world/host/unique_fd.h"

namespace farwarp {

HeapMemory::Allocation::~Allocation() {
  if (pointer) device->release_shareable(pointer, handle);
}

/// What a rank sends its peers about its memory.
struct HeapMemory::Offer {
  MemoryHandle handle;
  int ordinal = 0;
  const std::shared_ptr<Allocation>* allocation = nullptr;  // an address in the sender's process
};

Result<std::unique_ptr<HeapMemory>> HeapMemory::create(std::shared_ptr<Device> device, Bootstrap& bootstrap,
                                                       Collectives& collectives, std::size_t bytes,
                                                       std::chrono::milliseconds timeout) {
  std::unique_ptr<HeapMemory> heap(new HeapMemory(device));
  heap->own_ = std::make_shared<Allocation>();
  heap->own_->device = device;
  auto pointer = device->allocate_shareable(bytes, &heap->own_->handle);
  if (pointer.ok()) heap->own_->pointer = *pointer;
  if (Status all = collectives.all_ok(pointer.status()); !all.ok()) return all;

  auto offers = heap->exchange_offers(bootstrap, collectives, timeout);
  if (!offers.ok()) return offers.status();
  const Status mapped = heap->map_peers(*offers, bootstrap.rank(), bootstrap.same_process());
  if (!bootstrap.same_process()) {
    for (Offer& offer : *offers) UniqueFd(offer.handle.fd).reset();
  }
  // Every rank's allocation, to which its offer points, must live until all ranks are here.
  if (Status all = collectives.all_ok(mapped); !all.ok()) return all;
  return heap;
}

Result<std::vector<HeapMemory::Offer>> HeapMemory::exchange_offers(Bootstrap& bootstrap, Collectives& collectives,
                                                                   std::chrono::milliseconds timeout) {
  auto offers = collectives.gather(Offer{own_->handle, device_->ordinal(), &own_});
  if (!offers.ok() || bootstrap.same_process()) return offers;
  // The sender's addresses and descriptor numbers are not valid in another process.
  auto fds = bootstrap.allgather_fds(own_->handle.fd, timeout);
  if (!fds.ok()) return fds.status();
  for (std::size_t rank = 0; rank < offers->size(); ++rank) {
    Offer& offer = (*offers)[rank];
    offer.handle.fd = (*fds)[rank];
    offer.handle.address = nullptr;
    offer.allocation = nullptr;
  }
  return offers;
}

Status HeapMemory::map_peers(const std::vector<Offer>& offers, int rank, bool same_process) {
  for (int peer = 0; peer < static_cast<int>(offers.size()); ++peer) {
    if (peer == rank) {
      bases_.push_back(own_->pointer);
      continue;
    }
    const Offer& offer = offers[peer];
    auto pointer = device_->import(offer.handle, offer.ordinal);
    if (!pointer.ok()) {
      return {pointer.status().code(),
              fmt::format("cannot map the heap of rank {}: {}", peer, pointer.status().message())};
    }
    imports_.push_back({*pointer, offer.handle, same_process ? *offer.allocation : nullptr});
    if (!same_process) imports_.back().handle.fd = -1;  // closed once mapped
    bases_.push_back(*pointer);
  }
  return {};
}

HeapMemory::~HeapMemory() {
  for (const Import& import : imports_) device_->release_import(import.pointer, import.handle);
}

}  // namespace farwarp
