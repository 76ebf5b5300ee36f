// The kernels of grouped_gemm.
#pragma once

#include "farwarp/tile/gemm/variants.h"

/// KERNEL(name, T, rows, columns, gated, fp8): tiles of `rows` rows of x and `columns` rows of w, which gated are half
/// of the gate's and half of the up projection's.
#define FARWARP_GROUPED_OF(KERNEL, prefix, type, T)                 \
  KERNEL(prefix##_##type##_64x128, T, 64, 128, false, false)        \
  KERNEL(prefix##_##type##_128x128, T, 128, 128, false, false)      \
  KERNEL(prefix##_##type##_128x256, T, 128, 256, false, false)      \
  KERNEL(prefix##_gated_##type##_64x128, T, 64, 128, true, false)   \
  KERNEL(prefix##_gated_##type##_128x128, T, 128, 128, true, false) \
  KERNEL(prefix##_gated_##type##_128x256, T, 128, 256, true, false)
#define FARWARP_GROUPED_FP8_OF(KERNEL, prefix, type, T)              \
  KERNEL(prefix##_fp8_##type##_64x128, T, 64, 128, false, true)      \
  KERNEL(prefix##_fp8_##type##_128x128, T, 128, 128, false, true)    \
  KERNEL(prefix##_fp8_gated_##type##_64x128, T, 64, 128, true, true) \
  KERNEL(prefix##_fp8_gated_##type##_128x128, T, 128, 128, true, true)
#define FARWARP_GROUPED(KERNEL) FARWARP_BOTH_TYPES(FARWARP_GROUPED_OF, KERNEL, grouped_gemm)
#define FARWARP_GROUPED_FP8(KERNEL) FARWARP_BOTH_TYPES(FARWARP_GROUPED_FP8_OF, KERNEL, grouped_gemm)

namespace farwarp::grouped_gemm {

struct Variant {
  const char* name;
  DType dtype;  ///< of y
  int rows, columns;
  bool gated, fp8;
};

#define FARWARP_GROUPED_VARIANT(name, T, rows, columns, gated, fp8) \
  Variant{#name, ::farwarp::T::kDType, rows, columns, gated, fp8},
inline constexpr Variant kKernels[] = {FARWARP_GROUPED(FARWARP_GROUPED_VARIANT)
                                           FARWARP_GROUPED_FP8(FARWARP_GROUPED_VARIANT)};
#undef FARWARP_GROUPED_VARIANT

}  // namespace farwarp::grouped_gemm
