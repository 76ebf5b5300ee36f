// All-reduce: every rank gets the sum of all ranks' tensors.
#pragma once

#include <cstdint>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/all_reduce/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// out[i] = x_0[i] + x_1[i] + ..., added in fp32 in the order of the ranks and rounded once: the same bits on all
/// ranks and in every run.
///
/// Not thread-safe. Calls of one instance must be in one stream; two calls that run at the same time are detected in
/// some cases, not in all. Calls are asynchronous, allocate nothing and can be captured. All ranks make the same calls
/// with the same numbers of elements. A failed call (deadline, a peer that is gone) shows in World::status(); then
/// World::recover() is needed. Kernels in other streams that wait for peers (another instance, NCCL) must fit on the
/// device beside a call's blocks (AllReduceDesc::max_sms), or a wait may end at its deadline.
class AllReduce {
 public:
  /// Collective; all ranks pass the same descriptor. Takes plan.word_bytes, part_bytes and signal_bytes of the World's
  /// heap. The World must outlive the operator and must not move. A rank's wrong descriptor or lack of memory is every
  /// rank's error; kMismatch if the descriptors differ.
  static Result<AllReduce> create(World& world, const AllReduceDesc& desc);
  AllReduce(AllReduce&&) noexcept;
  AllReduce& operator=(AllReduce&&) noexcept;
  /// Local: does not return the memory to the heap. Use close() for that.
  ~AllReduce();
  /// Collective. The streams that used the operator must be idle. Afterwards every call returns kMisuse, as after a
  /// move from the object.
  Status close();

  const AllReducePlan& plan() const;
  /// For tests: from the next call on, this rank does not send vector (one-shot) or chunk (two-shot) `number` - 1 to
  /// its peers; 0: it sends all.
  void drop_put(int number);

  /// `x`, `out`: [elements] of the dtype, contiguous, 16-byte aligned, device memory of this rank. They may be the
  /// same; otherwise they must not overlap. `elements`: 0 (nothing happens) to max_elements, the same on all ranks.
  /// kInvalidArgument names the argument.
  Status operator()(const void* x, void* out, std::int64_t elements, Stream stream);

 private:
  struct State;
  explicit AllReduce(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
