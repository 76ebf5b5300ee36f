// The routed experts of a MoE layer over the ranks of a World, in one launch: tokens go to their experts' ranks, which
// multiply, and their weighted sums come back.
#pragma once

#include <cstdint>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/moe_layer/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Device pointers, row-major. x, w1, w2, the biases and out begin at multiples of 16 bytes. Without tokens, x,
/// topk_indices, topk_weights and out may be null.
struct MoeLayerTensors {
  const void* x = nullptr;                         ///< [tokens, hidden]
  const void* topk_indices = nullptr;              ///< [tokens, experts_per_token]; -1 skips an entry
  const float* topk_weights = nullptr;             ///< [tokens, experts_per_token]
  int tokens = 0;                                  ///< 0 to max_tokens; may differ between ranks
  const std::int32_t* tokens_on_device = nullptr;  ///< if given, the number of tokens is read there by the kernel
  const void* w1 = nullptr;  ///< [local experts, 2 * intermediate, hidden]: each expert's gate rows, then its up rows
  const void* w2 = nullptr;  ///< [local experts, hidden, intermediate]
  const void* bias1 = nullptr;  ///< exactly with has_bias: [local experts, 2 * intermediate]
  const void* bias2 = nullptr;  ///< exactly with has_bias: [local experts, hidden]
  void* out = nullptr;          ///< [tokens, hidden]
};

/// Fault injection, for tests.
struct MoeLayerFaults {
  std::uint32_t drop_put = 0;  ///< this rank drops the row of this token, counted from 1; 0: none
};

/// For each token t, with k-slots j of expert e(t, j) and weight(t, j):
///   h[t, j] = round(activation(x[t] * gate(e)^T + bias, x[t] * up(e)^T + bias))      sums in fp32
///   y[t, j] = round(h[t, j] * w2(e)^T + bias)                                         sums in fp32
///   p[t, r] = round(sum over k-slots j with experts of rank r, in their order, of weight(t, j) * y[t, j])  fp32
///   out[t]  = round(sum over ranks r, in their order, of p[t, r])                      fp32
/// A token without experts gives zeros. A token's bits depend neither on others nor on the kernel that the plan
/// chooses.
/// An expert that does not exist, or a wrong number of tokens on the device, ends as the World's kBadInput, too many
/// entries as kCapacity; World::recover() follows. An instance takes plan().memory_bytes() of the World's heap.
///
/// Not thread-safe. Calls of one instance must be in one stream, on all ranks in the same order. Calls are
/// asynchronous, allocate nothing and can be captured; tokens and routing may change from one replay to the next. The
/// World's deadline bounds a launch, so it must be longer than the products take.
class MoeLayer {
 public:
  /// Collective. All ranks must pass the same descriptor. The World must outlive the operator and must not move.
  static Result<MoeLayer> create(World& world, const MoeLayerDesc& desc);
  MoeLayer(MoeLayer&&) noexcept;
  MoeLayer& operator=(MoeLayer&&) noexcept;
  ~MoeLayer();
  /// Collective. The streams that used the operator must be idle. Afterwards every call returns kMisuse, as after a
  /// move from the object.
  Status close();

  const MoeLayerPlan& plan() const;
  /// Every rank must call it, also one without tokens.
  Status operator()(const MoeLayerTensors& tensors, Stream stream);

  void inject(const MoeLayerFaults& faults);

 private:
  struct State;
  explicit MoeLayer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
