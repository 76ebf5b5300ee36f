// The ranks of a World as an NCCL communicator: for unfused paths, and for what is timed beside ours.
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
  /// Collective, also for a rank that has no use for NCCL: `mine` says why, and then all ranks get kUnavailable in the words of
  /// the first such rank. kUnavailable without NCCL or on a target that is not CUDA. The World must outlive the group and stay
  /// where it is.
  static Result<NcclGroup> create(World& world, const Status& mine);
  NcclGroup(NcclGroup&&) noexcept;
  NcclGroup& operator=(NcclGroup&&) noexcept;
  /// Collective: NCCL may wait for the other ranks of the machine. Streams must be idle and graphs that captured calls
  /// destroyed, because NCCL waits for them without a bound.
  ~NcclGroup();

  /// These two not of a group that was moved from.
  const nccl::Library& library() const;
  nccl::Communicator communicator() const;
  /// `calls` with the device current, as one group of NCCL's.
  Status grouped(const std::function<Status()>& calls);

  /// Collective: `calls` enqueue what will be called later, to be waited for here, at most the World's deadline. NCCL connects
  /// two ranks, and loads its kernels, when they first exchange something: not while anything is timed, captured or waiting inside
  /// a kernel.
  Status connect(Stream stream, const std::function<Status()>& calls);
  /// Something that NCCL enqueued may never end: memory and streams that it was given are still in use.
  bool stuck() const;

 private:
  struct State;
  explicit NcclGroup(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
