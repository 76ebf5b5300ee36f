// World: a group of ranks with a symmetric heap, epochs, bounded waits and recovery.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/runtime/device.h"
#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/view.h"

namespace farwarp {

struct WorldOptions {
  TargetKind target = TargetKind::kEmuSm90;
  int device = -1;  ///< ordinal; -1: the rank
  /// Longest wait of any kernel; half a second more bounds each wait for a rank in a collective host call. See
  /// world/README.md for threads on the emulator, and for recover().
  std::chrono::milliseconds deadline{10'000};
  std::size_t heap_bytes = std::size_t{256} << 20;  ///< of each rank
};

/// A piece of the symmetric heap: the same offset on every rank.
struct SymmetricBuffer {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  void* local = nullptr;  ///< this rank's copy, a device pointer
};

/// A ledger record in words.
struct WaitRecord {
  StatusCode kind;
  int rank;
  std::string operator_name;
  std::string site;
  int peer;  ///< -1: none
  std::uint32_t epoch;
  std::uint64_t expected;
  std::uint64_t seen;
  std::chrono::nanoseconds waited;
  std::string to_string() const;

 private:
  std::string finding() const;
};

/// Move-only. Every member marked collective must be called by all ranks, in the same order; a different order on some
/// rank ends in kMismatch on all, not in a hang. Of a World that was moved from, calls return kMisuse, the rank is -1 and the size 0;
/// device() and bootstrap() are what they were.
class World {
 public:
  /// Collective.
  static Result<World> create(std::shared_ptr<Bootstrap> bootstrap, const WorldOptions& options);
  World(World&&) noexcept;
  World& operator=(World&&) noexcept;
  /// Local and bounded. Waits until the device has done all that this process has enqueued there, so that a call in flight cannot touch
  /// memory of the next World: as a rule no longer than the deadline, twice five quarters of it at most. Should something still run then,
  /// the World's memory is kept until the process ends. Graphs that captured calls must not be launched any more.
  ~World();

  int rank() const;
  int size() const;
  Device& device();
  Bootstrap& bootstrap();
  const WorldOptions& options() const;
  /// What kernels take.
  const WorldView& view() const;
  /// kMisuse if this World was moved from.
  Status check_usable() const;

  /// Collective: memory in the symmetric heap, each byte `fill`. recover() fills it again, unless with zeros: for words
  /// (world/device/words.dev.h), which an aborted call may leave behind. kOutOfMemory states how much is left, kMismatch which rank
  /// asked for something else.
  Result<SymmetricBuffer> allocate(std::size_t bytes, std::size_t alignment = 256, std::uint8_t fill = 0);
  /// Collective.
  Status free(const SymmetricBuffer& buffer);

  /// Collective: all ranks can go on, as `mine` tells, and mean the same by `what` and `configuration`. If one cannot, all fail for its
  /// reason; else kMismatch names the first rank that differs.
  Status agree(const std::string& what, std::uint64_t configuration, const Status& mine = {});
  /// Collective: a slot in WorldControl::operators, its epoch set to the same world-monotone value on all ranks.
  /// Name and `configuration` (hashed) must agree between ranks, and all can go on: as agree() has it.
  /// `site_names[i]` is what the ledger calls wait site i.
  Result<int> open_operator(std::string name, std::vector<std::string> site_names, std::uint64_t configuration,
                            const Status& mine = {});
  /// Collective; the streams that used it must be idle.
  Status close_operator(int slot);

  /// A subgroup: collective over the ranks of this World; ranks with the same colour form a World of their own with a
  /// heap of its own, ordered by rank. Colour -1 joins none and gets kUnavailable.
  Result<World> split(int colour, std::size_t heap_bytes);

  /// The first asynchronous failure since creation or recover(): a host load, no synchronisation. Sticky.
  Status status() const;
  /// All records of the ledger.
  std::vector<WaitRecord> ledger() const;
  /// Collective: drains `streams`, agrees on the highest epoch + 1, clears abort and ledger, fills buffers again that were not
  /// allocated as zeros. Captured graphs stay valid. kPeerLost if a rank is dead or cannot drain within the deadline: then this World is lost for good.
  Status recover(const std::vector<Stream>& streams);
  /// Raises the abort on every rank from the host, as a kernel would.
  void abort();

 private:
  friend struct WorldAccess;  // testing.h
  struct State;
  explicit World(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<Bootstrap> bootstrap_;
};

}  // namespace farwarp
