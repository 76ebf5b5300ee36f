// A matrix product on one device: the main loop that the communicating operators are woven from, alone.
#pragma once

#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/gemm/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Not thread-safe; calls of one instance must be in one stream (two at once are found out in most cases, not in all). The World's
/// deadline bounds a launch, so it must be longer than the product takes. They are asynchronous, allocate nothing and can be captured.
class Gemm {
 public:
  /// Collective over the World's ranks, whose products have nothing to do with each other (a World of one rank will do), but must
  /// have one shape. Takes plan.workspace_bytes of the World's heap. The World must outlive the operator and stay where it is.
  static Result<Gemm> create(World& world, const GemmDesc& desc);
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;
  /// Local: does not give the workspace back. Use close() for that.
  ~Gemm();
  /// Collective; the streams that used it must be idle. Afterwards every call returns kMisuse, as of an object that was moved from.
  Status close();

  const GemmPlan& plan() const;

  /// y[m, n] = x[m, k] * w[n, k]^T (+ bias[n]), of Desc::dtype with Desc's pitches: device pointers, 16-byte aligned. `bias` is null
  /// exactly if the Desc has none.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream);

 private:
  struct State;
  explicit Gemm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
