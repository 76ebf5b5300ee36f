// GEMM and reduce-scatter in one kernel: each rank multiplies its part of K and sends every tile of partial sums, as
// soon as it is computed, to the rank that owns its rows, which adds them up.
#pragma once

#include <cstdint>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Faults on purpose, to see that checks notice them. The same kernels run with and without them.
struct GemmReduceScatterFaults {
  /// This rank's n-th tile (from 1) is not sent; 0: all are. With boxes and flags the tile is flagged all the same, and
  /// the owner adds up what its inbox held before. With words the call ends at its deadline.
  std::uint32_t drop_put = 0;
};

/// Not thread-safe. Calls of one instance must be in one stream (calls in two streams at once are mostly detected, not
/// always); they are asynchronous, allocate nothing and can be captured. All ranks make the same number of calls. The
/// World's deadline must be longer than a call takes. Kernels in other streams that wait for peers (another instance,
/// NCCL) must fit on the device beside a call's blocks (ParallelGemmDesc::max_sms), or a wait may end at its deadline.
class GemmReduceScatter {
 public:
  /// Collective. Takes plan.heap_bytes() bytes of the World's heap. The World must outlive the operator and must not be
  /// moved. If the descriptors differ, all ranks get kMismatch; if one rank fails, all ranks get its reason.
  static Result<GemmReduceScatter> create(World& world, const ParallelGemmDesc& desc);
  GemmReduceScatter(GemmReduceScatter&&) noexcept;
  GemmReduceScatter& operator=(GemmReduceScatter&&) noexcept;
  /// Local: does not free the workspace; close() does.
  ~GemmReduceScatter();
  /// Collective; the streams that used it must be idle. Afterwards every call returns kMisuse, as it does after a move
  /// from the object.
  Status close();

  const GemmReduceScatterPlan& plan() const;
  /// Takes effect from the next call on.
  void inject(const GemmReduceScatterFaults& faults);

  /// y[m/R, n] = rows rank * m/R and following of the sum over all ranks of round(x[m, k/R] * w[n, k/R]^T (+ bias[n])).
  /// Each rank's term is rounded to the descriptor's dtype; the sum is made in fp32 in the order of the ranks and
  /// rounded once. Device pointers, 16-byte aligned.
  /// `bias` must be null if and only if the descriptor has no bias. kInvalidArgument names the parameter.
  /// y must not overlap an input.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream);

 private:
  struct State;
  explicit GemmReduceScatter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
