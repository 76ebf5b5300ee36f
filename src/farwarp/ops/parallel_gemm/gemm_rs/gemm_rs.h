// GEMM and reduce-scatter in one kernel: each rank multiplies its part of K and sends every tile of partial sums, as soon as it is
// there, to the rank that owns its rows, which adds them up.
#pragma once

#include <cstdint>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Deliberate damage, to see that checks catch it. The same kernels run with and without.
struct GemmReduceScatterFaults {
  std::uint32_t drop_put =
      0;  ///< this rank's n-th tile (from 1) is told of but not sent: what lay there is summed. As words: not sent, so that the
  ///< call ends at its deadline. 0: none
};

/// Not thread-safe; calls of one instance must be in one stream (two at once are found out in most cases, not in all). The World's
/// deadline bounds a launch, so it must be longer than the product takes. They are asynchronous, allocate nothing and can be captured.
class GemmReduceScatter {
 public:
  /// Collective. Takes plan.heap_bytes() bytes of the World's heap. The World must outlive the operator and stay where it is.
  static Result<GemmReduceScatter> create(World& world, const ParallelGemmDesc& desc);
  GemmReduceScatter(GemmReduceScatter&&) noexcept;
  GemmReduceScatter& operator=(GemmReduceScatter&&) noexcept;
  /// Local: does not give the workspace back. Use close() for that.
  ~GemmReduceScatter();
  /// Collective; the streams that used it must be idle. Afterwards every call returns kMisuse, as of an object that was moved from.
  Status close();

  const GemmReduceScatterPlan& plan() const;
  /// From the next call on.
  void inject(const GemmReduceScatterFaults& faults);

  /// Rows rank * m/R ... of the sum over all ranks of round(x[m, k/R] * w[n, k/R]^T (+ bias[n])), into y[m/R, n]: each rank's term is
  /// rounded to Desc::dtype, the sum is made in fp32 in the order of the ranks and rounded once. Device pointers, 16-byte aligned.
  /// `bias` is null exactly if the Desc has none.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream);

 private:
  struct State;
  explicit GemmReduceScatter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
