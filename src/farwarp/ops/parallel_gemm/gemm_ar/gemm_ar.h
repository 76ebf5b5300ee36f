// GEMM and all-reduce in one kernel: each rank multiplies its part of K, and every rank gets the sum.
#pragma once

#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Not thread-safe. Calls of one instance must be in one stream; they are asynchronous, allocate nothing and can be
/// captured. All ranks make the same number of calls. The World's deadline must be longer than a call takes. Kernels in
/// other streams that wait for peers (another instance, NCCL) must fit on the device beside a call's blocks
/// (ParallelGemmDesc::max_sms), or a wait may end at its deadline.
class GemmAllReduce {
 public:
  /// Collective. Takes plan.heap_bytes() bytes of the World's heap. The World must outlive the operator and must not be
  /// moved. If the descriptors differ, all ranks get kMismatch; if one rank fails, all ranks get its reason.
  static Result<GemmAllReduce> create(World& world, const ParallelGemmDesc& desc);
  GemmAllReduce(GemmAllReduce&&) noexcept;
  GemmAllReduce& operator=(GemmAllReduce&&) noexcept;
  /// Local: does not free the workspace; close() does.
  ~GemmAllReduce();
  /// Collective; the streams that used it must be idle. Afterwards every call returns kMisuse, as it does after a move
  /// from the object.
  Status close();

  const GemmAllReducePlan& plan() const;

  /// y[m, n] = the sum over all ranks of round(x[m, k/R] * w[n, k/R]^T (+ bias[n])), on every rank. Each rank's term is
  /// rounded to the descriptor's dtype; the sum is made in fp32 in the order of the ranks and rounded once, so all
  /// ranks get the same bits. Device pointers, 16-byte aligned. `bias` must be null if and only if the descriptor has
  /// no bias. kInvalidArgument names the parameter. y must not overlap an input.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream);

  /// Fault injection, from the next call on: this rank does not send its `number`-th tile (from 1). 0: sends all.
  void drop_put(int number);

 private:
  struct State;
  explicit GemmAllReduce(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
