// GEMM and all-reduce in one kernel: each rank multiplies its part of K, and every rank gets the sum.
#pragma once

#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Not thread-safe. Calls of one instance must be in one stream. They are asynchronous, allocate nothing and can be captured. Every rank of
/// the World must make every call, and the World's deadline must be longer than one takes.
class GemmAllReduce {
 public:
  /// Collective; kMismatch on all ranks if their Descs differ. Takes plan.heap_bytes() of the World's heap. The World must outlive
  /// the operator and stay where it is.
  static Result<GemmAllReduce> create(World& world, const ParallelGemmDesc& desc);
  GemmAllReduce(GemmAllReduce&&) noexcept;
  GemmAllReduce& operator=(GemmAllReduce&&) noexcept;
  /// Local: does not give the workspace back. Use close() for that.
  ~GemmAllReduce();
  /// Collective; the streams that used it must be idle. Afterwards, as after a move from it, every call returns kMisuse.
  Status close();

  const GemmAllReducePlan& plan() const;

  /// y[m, n] gets the sum over all ranks of round(x[m, k/R] * w[n, k/R]^T (+ bias[n])), on every rank. Each rank's term is rounded to
  /// Desc::dtype. The sum is made in fp32 in the order of the ranks and rounded once, so it is the same on all ranks. Device pointers,
  /// 16-byte aligned. `bias` is null exactly if the Desc has none.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream);

  /// Fault injection, from the next call on: this rank's `number`-th tile (from 1) is not sent; 0: all are.
  void drop_put(int number);

 private:
  struct State;
  explicit GemmAllReduce(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
