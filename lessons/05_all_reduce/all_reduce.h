// All-reduce of fp32 vectors: every rank gets the sum of all ranks' vectors, one-shot.
#pragma once

#include <memory>

#include "farwarp/runtime/device.h"
#include "farwarp/world/host/world.h"
#include "plan.h"

namespace farwarp::lessons {

/// out[i] = in_0[i] + in_1[i] + ..., added in rank order in fp32: the same bits on all ranks.
///
/// Not thread-safe. Calls of one instance must be in one stream. They are asynchronous, allocate nothing and can be
/// captured. All ranks make the same number of calls. A failed call (deadline, a peer that is gone) shows in
/// World::status(); then World::recover() is needed.
class AllReduce {
 public:
  /// Collective. The World must outlive the object. A rank's wrong descriptor or lack of memory is every rank's error;
  /// kMismatch if the descriptors differ.
  static Result<AllReduce> create(World& world, const AllReduceDesc& desc);
  AllReduce(AllReduce&&) noexcept;
  AllReduce& operator=(AllReduce&&) noexcept;
  ~AllReduce();
  /// Collective; the stream must be idle. Afterwards every call is kMisuse.
  Status close();

  const AllReducePlan& plan() const;

  /// `in`, `out`: fp32 [elements], device memory of this rank; they may be the same. kInvalidArgument for null or
  /// misaligned pointers.
  Status operator()(const float* in, float* out, Stream stream);

 private:
  struct State;
  explicit AllReduce(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp::lessons
