// The kernels of moe_layer.
#pragma once

#include "farwarp/tile/gemm/variants.h"

/// KERNEL(name, T, rows, columns): tiles of `rows` rows of an expert and `columns` rows of w1 or w2.
#define FARWARP_MOE_LAYER_OF(KERNEL, prefix, type, T) \
  KERNEL(prefix##_##type##_64x128, T, 64, 128)        \
  KERNEL(prefix##_##type##_128x128, T, 128, 128)      \
  KERNEL(prefix##_##type##_128x256, T, 128, 256)
#define FARWARP_MOE_LAYER(KERNEL) FARWARP_BOTH_TYPES(FARWARP_MOE_LAYER_OF, KERNEL, moe_layer)

namespace farwarp::moe_layer {

struct Variant {
  const char* name;
  DType dtype;
  int rows, columns;
};

#define FARWARP_MOE_LAYER_VARIANT(name, T, rows, columns) Variant{#name, ::farwarp::T::kDType, rows, columns},
inline constexpr Variant kKernels[] = {FARWARP_MOE_LAYER(FARWARP_MOE_LAYER_VARIANT)};
#undef FARWARP_MOE_LAYER_VARIANT

}  // namespace farwarp::moe_layer
