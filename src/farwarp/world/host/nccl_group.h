// The ranks of a World as an NCCL communicator: for unfused paths and baselines.
#pragma once

#include <functional>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/vendor/nccl.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Move-only, not thread-safe. NVLink multicast is switched off.
class NcclGroup {
 public:
  /// Collective, also for a rank that cannot use NCCL: it says why in `mine`, and all ranks get kUnavailable with the
  /// message of the first such rank. Also kUnavailable without NCCL and on targets other than CUDA. The World must
  /// outlive the group and must not be moved.
  static Result<NcclGroup> create(World& world, const Status& mine);
  NcclGroup(NcclGroup&&) noexcept;
  NcclGroup& operator=(NcclGroup&&) noexcept;
  /// Collective: NCCL may wait for the other ranks of the machine. Streams must be idle and graphs that captured calls
  /// destroyed, because NCCL waits for them without a bound.
  ~NcclGroup();

  /// These two must not be called on a group that was moved from.
  const nccl::Library& library() const;
  nccl::Communicator communicator() const;
  /// Runs `calls` with the device current, between ncclGroupStart and ncclGroupEnd.
  Status grouped(const std::function<Status()>& calls);

  /// Collective: runs `calls`, which enqueue the NCCL calls of later use, and waits for them, at most for the World's
  /// deadline. NCCL connects two ranks and loads its kernels when they first exchange something. This must not happen
  /// while a call is timed or captured, or while a kernel waits for a peer.
  Status connect(Stream stream, const std::function<Status()>& calls);
  /// True if something that NCCL enqueued may never end: the memory and streams that it was given are still in use.
  bool stuck() const;

 private:
  struct State;
  explicit NcclGroup(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
