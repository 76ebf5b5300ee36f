// Products of groups of rows with matrices of their own, as the experts of a MoE layer take them, in one launch.
#pragma once

#include <cstdint>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/grouped_gemm/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Device pointers; shapes in GroupedGemmDesc. x, w, bias and y begin at multiples of 16 bytes.
struct GroupedGemmTensors {
  const void* x = nullptr;
  const void* w = nullptr;
  const float* x_scale = nullptr;      ///< with scaling: [rows of x, ceil(k / 128)]
  const float* w_scale = nullptr;      ///< with scaling: [groups, ceil(n / 128), ceil(k / 128)]; gated [groups, 2, ...]
  const std::int32_t* rows = nullptr;  ///< kOffsets [groups + 1], not decreasing, or kCounts [groups]
  const void* bias = nullptr;          ///< exactly with has_bias
  void* y = nullptr;                   ///< [rows of x, n]; rows of no group are not written
};

/// Not thread-safe. Calls of one instance must be in one stream. Calls are asynchronous, allocate nothing and can be
/// captured; the groups' rows may change from one replay to the next. A row's result does not depend on other rows. The
/// World's deadline bounds a launch, so it must be longer than the products take. If a number in `rows` is not allowed,
/// nothing is computed, and the World's status is kBadInput.
class GroupedGemm {
 public:
  /// Collective over the World's ranks, whose products are independent; all must pass the same descriptor. The World
  /// must outlive the operator and must not move.
  static Result<GroupedGemm> create(World& world, const GroupedGemmDesc& desc);
  GroupedGemm(GroupedGemm&&) noexcept;
  GroupedGemm& operator=(GroupedGemm&&) noexcept;
  ~GroupedGemm();
  /// Collective. The streams that used the operator must be idle. Afterwards every call returns kMisuse, as after a
  /// move from the object.
  Status close();

  const GroupedGemmPlan& plan() const;
  Status operator()(const GroupedGemmTensors& tensors, Stream stream);

 private:
  struct State;
  explicit GroupedGemm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
