// The same layer without fusion: dispatch, two grouped products, combine. Its bits are those of moe_layer.
#pragma once

#include <optional>

#include "farwarp/harness/device_buffer.h"
#include "farwarp/ops/grouped_gemm/grouped_gemm.h"
#include "farwarp/ops/moe_a2a/moe_a2a.h"
#include "farwarp/ops/moe_layer/moe_layer.h"

namespace farwarp::moe_layer {

class Unfused {
 public:
  /// Bytes of a World's heap.
  static Result<std::int64_t> heap_bytes(const MoeLayerDesc& desc, const MachineShape& shape, int ranks);
  /// Collective.
  Status open(World& world, const MoeLayerDesc& desc);
  /// The caller's tensors; `out` instead of theirs.
  Status enqueue(const MoeLayerTensors& tensors, void* out, Stream stream);
  /// Collective.
  Status close();

 private:
  std::optional<MoeAllToAll> exchange_;
  std::optional<GroupedGemm> first_, second_;
  harness::DeviceBuffer x_, h_, y_, counts_, offsets_;
};

}  // namespace farwarp::moe_layer
