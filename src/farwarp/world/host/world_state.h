// What a World holds, shared by the files that implement it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/world/host/collectives.h"
#include "farwarp/world/host/heap.h"
#include "farwarp/world/host/ledger.h"
#include "farwarp/world/host/offset_allocator.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// The first bytes of every heap, reserved for WorldControl.
inline constexpr std::size_t kControlBytes = std::size_t{64} << 10;
static_assert(sizeof(WorldControl) <= kControlBytes);

// Epochs are compared for equality on the device and wrap after 2^32; the host orders them by their distance, which is
// right while the epochs in use are less than 2^31 apart.
constexpr std::uint32_t later_epoch(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) > 0 ? a : b;
}

/// An even epoch that no operator has reached; at least one epoch before it is skipped. It is even, so that all
/// operators of a World begin with the same inbox parity. It is not 0, which is what zeroed memory holds.
constexpr std::uint32_t fresh_epoch(std::uint32_t highest) {
  const std::uint32_t epoch = (highest + 3u) & ~1u;
  return epoch == 0 ? 2u : epoch;
}

struct World::State {
  struct OpenOperator {
    std::string name;
    std::vector<std::string> site_names;
    std::vector<std::string> step_names;
  };

  /// A buffer that recover() fills again.
  struct Refilled {
    SymmetricBuffer buffer;
    std::uint8_t fill;
  };

  /// Does not free memory that a kernel may still use.
  ~State();

  static Result<World> create(std::shared_ptr<Bootstrap> bootstrap, const WorldOptions& options,
                              std::shared_ptr<Device> device);

  /// Begins a collective call: checks that all ranks make it with the same arguments. Fails at once on a lost World.
  Status enter(const std::string& call);
  /// World::agree() on behalf of `call`. Agrees on the name first, alone: a rank whose `mine` is not ok may have no
  /// configuration.
  Status agree(const char* call, const std::string& what, std::uint64_t configuration, const Status& mine);
  /// Returns `status`. If it says that a peer is lost, the World is lost from now on.
  Status note_loss(Status status);
  Status lose(const std::string& why);

  Status open_local_resources();
  Status write_control();
  Status synchronize() { return device->synchronize(*stream, timeout_ns()); }
  /// Writes this rank's abort to the abort cell of `peer`, which may be this rank.
  Status raise_abort(int peer);
  /// Waits until no kernel can use this World any more; bounded.
  Status drain();
  Status write_cells(int slot, std::uint32_t epoch);
  Status reset_control(std::uint32_t epoch);
  /// Collective: the latest epoch that any open operator has reached on any rank, or that an operator was given before.
  Result<std::uint32_t> agree_highest_epoch();
  HostLedger::Names names(std::uint32_t slot, std::uint32_t site) const;
  bool is_open(int slot) const { return slot >= 0 && slot < kMaxOperators && operators[slot]; }

  WorldControl* control() const { return reinterpret_cast<WorldControl*>(heap->base(view.rank)); }
  std::uint64_t timeout_ns() const {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(host_timeout).count());
  }

  std::shared_ptr<Bootstrap> bootstrap;
  WorldOptions options;
  std::chrono::milliseconds host_timeout{};  // of collective host calls
  Collectives collectives;
  std::shared_ptr<Device> device;
  std::optional<Stream> stream;  // for the World's own copies and fills
  std::unique_ptr<HostLedger> ledger;
  std::unique_ptr<HeapMemory> heap;
  OffsetAllocator offsets;
  std::vector<Refilled> refilled;
  WorldView view{};

  std::array<std::optional<OpenOperator>, kMaxOperators> operators;
  std::uint32_t highest_epoch = 0;  // the same on all ranks
  std::uint32_t recoveries = 0;

  std::atomic<bool> lost = false;  // set once, after lost_status
  Status lost_status;
};

}  // namespace farwarp
