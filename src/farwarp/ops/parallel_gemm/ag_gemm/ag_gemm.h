// AllGather-GEMM: every rank multiplies all ranks' rows of x by its own weights. It multiplies rows while others still
// cross the links.
#pragma once

#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Not thread-safe; calls of one instance must be in one stream. They are asynchronous, allocate nothing and can be
/// captured. Every rank of the World must make every call, and the World's deadline must be longer than a call takes.
/// Ranks that launch two operators in two streams in different orders may wait for each other until the deadline.
/// Kernels in other streams that wait for peers (another instance, NCCL) must fit on the device beside a call's blocks
/// (ParallelGemmDesc::max_sms), or a wait may end at its deadline.
class AllGatherGemm {
 public:
  /// Collective; kMismatch on all ranks if their Descs differ. Takes plan.heap_bytes of the World's heap. The World
  /// must outlive the operator and stay where it is.
  static Result<AllGatherGemm> create(World& world, const ParallelGemmDesc& desc);
  AllGatherGemm(AllGatherGemm&&) noexcept;
  AllGatherGemm& operator=(AllGatherGemm&&) noexcept;
  /// Local: does not give the workspace back. Use close() for that.
  ~AllGatherGemm();
  /// Collective; the streams that used it must be idle. Afterwards every call returns kMisuse, as for a moved-from
  /// object.
  Status close();

  const AllGatherGemmPlan& plan() const;

  /// y[m, n/R] = x of all ranks [m, k] * w[n/R, k]^T (+ bias[n/R]). x is this rank's [m/R, k]. Device pointers, 16-byte
  /// aligned, of Desc::dtype, rows contiguous. `bias` is null exactly if the Desc has none. `all_x` is null exactly if
  /// Desc::return_x is not set. It gets x of all ranks [m, k]. y and `all_x` must not overlap an input or each other.
  /// If x crosses as words (plan().words), four consecutive elements of 0xffff (NaNs) in 8 aligned bytes arrive in
  /// `all_x` with the sign of one cleared.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream, void* all_x = nullptr);

  /// Fault injection, from the next call on: this rank does not send its `number`-th piece (from 1); 0: it sends all.
  void drop_put(int number);

 private:
  struct State;
  explicit AllGatherGemm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
