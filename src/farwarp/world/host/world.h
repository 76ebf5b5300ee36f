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
  /// The longest that a kernel may wait. A collective host call waits for a rank at most half a second longer. See
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

/// Move-only. All ranks must call every member marked collective, in the same order; a different order on some rank
/// ends in kMismatch on all, not in a hang. After a move the old object's calls return kMisuse, or do nothing if they
/// return no Status. Its rank is -1 and its size 0, it names no operator, and its device() and bootstrap() stay as they
/// were.
class World {
 public:
  /// Collective.
  static Result<World> create(std::shared_ptr<Bootstrap> bootstrap, const WorldOptions& options);
  World(World&&) noexcept;
  World& operator=(World&&) noexcept;
  /// Local and bounded. Waits until the device has completed everything that this process has enqueued there, so that a
  /// call in flight cannot touch memory of the next World. This takes at most the deadline as a rule, and at most 2.5
  /// host deadlines (world/README.md, "recover"). If something still runs then, the World's memory is kept until the
  /// process ends. Graphs that captured calls must not be launched any more.
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

  /// Collective: memory in the symmetric heap, each byte `fill`. If `fill` is not 0, recover() fills it again, since an
  /// aborted call may leave words in it (world/device/words.dev.h). kOutOfMemory states how much is left, kMismatch
  /// which rank asked for something else.
  Result<SymmetricBuffer> allocate(std::size_t bytes, std::size_t alignment = 256, std::uint8_t fill = 0);
  /// Collective.
  Status free(const SymmetricBuffer& buffer);

  /// Collective: ok if `mine` is ok on all ranks, and `what` and `configuration` are equal on all. If a rank's `mine`
  /// is not ok, all ranks fail with the first such rank's reason. Otherwise kMismatch names the first rank that
  /// differs.
  Status agree(const std::string& what, std::uint64_t configuration, const Status& mine = {});
  /// Collective: a slot in WorldControl::operators, its epoch set to the same value on all ranks, later than any epoch
  /// that an operator of this World has reached. `name`, `configuration` (a hash) and `mine` are agreed on as by
  /// agree(). `site_names[i]` is what the ledger calls wait site i.
  Result<int> open_operator(std::string name, std::vector<std::string> site_names, std::uint64_t configuration,
                            const Status& mine = {});
  /// Collective; the streams that used it must be idle.
  Status close_operator(int slot);

  /// Collective over the ranks of this World: ranks with the same colour form a new World with its own heap, ordered by
  /// rank. A rank with colour -1 joins none and gets kUnavailable.
  Result<World> split(int colour, std::size_t heap_bytes);

  /// The first asynchronous failure since creation or recover(). Sticky. Costs host loads, no synchronisation.
  Status status() const;
  /// What the ledger calls wait site `site` of the operator in slot `slot`: "moe_a2a: dispatch row".
  std::string wait_name(int slot, int site) const;
  /// Local: what a trace calls the steps of the operator in slot `slot`, a model's. Nothing if none is open there.
  void name_steps(int slot, std::vector<std::string> names);
  std::string step_name(int slot, std::uint64_t step) const;
  /// All records of the ledger.
  std::vector<WaitRecord> ledger() const;
  /// Collective: drains `streams`, agrees on an epoch later than all before, clears abort and ledger, and fills again
  /// every buffer that was allocated with a fill other than zeros. Captured graphs stay valid. kPeerLost if a rank is
  /// dead or cannot drain within the host deadline: this World is then lost for good.
  Status recover(const std::vector<Stream>& streams);
  /// How often recover() has succeeded: an operator that keeps state between calls has lost it each time.
  std::uint32_t recoveries() const;
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
