// The memory of the symmetric heap: one shareable allocation per rank, mapped by all.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/runtime/device.h"
#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/collectives.h"

namespace farwarp {

class HeapMemory {
 public:
  /// Collective: every rank's memory, mapped by this rank's device.
  static Result<std::unique_ptr<HeapMemory>> create(std::shared_ptr<Device> device, Bootstrap& bootstrap,
                                                    Collectives& collectives, std::size_t bytes,
                                                    std::chrono::milliseconds timeout);
  /// Local: this rank's memory stays while peers map it (see Allocation).
  ~HeapMemory();
  HeapMemory(const HeapMemory&) = delete;
  HeapMemory& operator=(const HeapMemory&) = delete;

  /// `rank`'s memory as this rank's device addresses it.
  std::byte* base(int rank) const { return static_cast<std::byte*>(bases_[rank]); }

 private:
  /// Memory of one rank. Ranks of one process share its ownership: if a rank ends early, for example after a failure,
  /// its memory stays for kernels of peers that still run. Between processes the driver's mapping does the same.
  struct Allocation {
    std::shared_ptr<Device> device;
    void* pointer = nullptr;
    MemoryHandle handle;
    ~Allocation();
  };
  struct Import {
    void* pointer = nullptr;
    MemoryHandle handle;
    std::shared_ptr<Allocation> keeps;  // same process only
  };
  struct Offer;

  explicit HeapMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Result<std::vector<Offer>> exchange_offers(Bootstrap& bootstrap, Collectives& collectives,
                                             std::chrono::milliseconds timeout);
  Status map_peers(const std::vector<Offer>& offers, int rank, bool same_process);

  std::shared_ptr<Device> device_;
  std::shared_ptr<Allocation> own_;
  std::vector<Import> imports_;
  std::vector<void*> bases_;
};

}  // namespace farwarp
