// A matrix product on one device: the main loop of the operators that communicate, alone.
#pragma once

#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/gemm/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Device pointers to scales, of the shapes that GemmScaling says, contiguous.
struct GemmScales {
  const float* x = nullptr;
  const float* w = nullptr;
};

/// Not thread-safe. Calls of one instance must be in one stream; two calls that run at the same time are detected in
/// most cases, not in all. Calls are asynchronous, allocate nothing and can be captured. The World's deadline bounds a
/// launch, so it must be longer than the product takes.
class Gemm {
 public:
  /// Collective over the World's ranks; a World of one rank is enough. The ranks' products are independent, but all
  /// ranks must pass the same descriptor. Takes plan.workspace_bytes of the World's heap. The World must outlive the
  /// operator and must not move.
  static Result<Gemm> create(World& world, const GemmDesc& desc);
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;
  /// Local: does not return the workspace to the heap. Use close() for that.
  ~Gemm();
  /// Collective. The streams that used the operator must be idle. Afterwards every call returns kMisuse, as after a
  /// move from the object.
  Status close();

  const GemmPlan& plan() const;

  /// y[m, n] = x[m, k] * w[n, k]^T (+ bias[n]). All are device pointers, 16-byte aligned, to elements of
  /// GemmDesc::dtype with the descriptor's pitches. `bias` must be null if has_bias is false, and only then. y must not
  /// overlap an input.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream);
  /// With GemmDesc::scaling: x and w are e4m3, and `scales` are device pointers.
  Status operator()(const void* x, const void* w, const GemmScales& scales, const void* bias, void* y, Stream stream);

 private:
  struct State;
  explicit Gemm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
