// GEMM and reduce-scatter in one kernel: each rank multiplies its part of K and sends each tile of partial sums, as soon as it is computed,
// to the owners of its rows, which add them up.
#pragma once

#include <cstdint>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Fault injection, to test that checks catch errors. The kernels are the same with and without faults.
struct GemmReduceScatterFaults {
  /// This rank's n-th tile (from 1) is not sent; 0: none. By boxes it is signalled all the same, and the owner adds what its inbox held.
  /// By words the call ends at its deadline.
  std::uint32_t drop_put = 0;
};

/// Not thread-safe. Calls of one instance must be in one stream; two at once are misuse, which is detected in most cases, not in all. Calls
/// are asynchronous, allocate nothing and can be captured. Every rank of the World must make every call. The World's deadline bounds a
/// launch, so it must be longer than the product takes.
class GemmReduceScatter {
 public:
  /// Collective. Takes plan.heap_bytes() bytes of the World's heap. The World must outlive the operator and stay where it is.
  static Result<GemmReduceScatter> create(World& world, const ParallelGemmDesc& desc);
  GemmReduceScatter(GemmReduceScatter&&) noexcept;
  GemmReduceScatter& operator=(GemmReduceScatter&&) noexcept;
  /// Local: does not give the workspace back. Use close() for that.
  ~GemmReduceScatter();
  /// Collective; the streams that used it must be idle. Afterwards, as after a move from it, every call returns kMisuse.
  Status close();

  const GemmReduceScatterPlan& plan() const;
  /// Takes effect from the next call on.
  void inject(const GemmReduceScatterFaults& faults);

  /// y[m/R, n] gets rows rank * m/R to (rank + 1) * m/R - 1 of the sum over all ranks of round(x[m, k/R] * w[n, k/R]^T (+ bias[n])). Each
  /// rank's term is rounded to Desc::dtype. The sum is made in fp32 in the order of the ranks and rounded once. Device pointers, 16-byte
  /// aligned. `bias` is null exactly if the Desc has none.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream);

 private:
  struct State;
  explicit GemmReduceScatter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
