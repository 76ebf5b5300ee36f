// The kernels of gemm.
#pragma once

#include "farwarp/tile/gemm/variants.h"

/// Tiles without and with swap_ab, those without which some product of suite tp would be slower (MEASURED.md, "The
/// plan").
#define FARWARP_GEMM_WGMMA_OF(KERNEL, prefix, type, T)         \
  KERNEL(prefix##_##type##_64x64, T, 64, 64, false)            \
  KERNEL(prefix##_##type##_64x80, T, 64, 80, false)            \
  KERNEL(prefix##_##type##_64x96, T, 64, 96, false)            \
  KERNEL(prefix##_##type##_64x128, T, 64, 128, false)          \
  KERNEL(prefix##_##type##_64x160, T, 64, 160, false)          \
  KERNEL(prefix##_##type##_64x192, T, 64, 192, false)          \
  KERNEL(prefix##_##type##_128x64, T, 128, 64, false)          \
  KERNEL(prefix##_##type##_128x80, T, 128, 80, false)          \
  KERNEL(prefix##_##type##_128x112, T, 128, 112, false)        \
  KERNEL(prefix##_##type##_128x128, T, 128, 128, false)        \
  KERNEL(prefix##_##type##_128x160, T, 128, 160, false)        \
  KERNEL(prefix##_##type##_128x192, T, 128, 192, false)        \
  KERNEL(prefix##_##type##_128x224, T, 128, 224, false)        \
  KERNEL(prefix##_##type##_128x256, T, 128, 256, false)        \
  KERNEL(prefix##_##type##_swap_ab_64x48, T, 64, 48, true)     \
  KERNEL(prefix##_##type##_swap_ab_64x104, T, 64, 104, true)   \
  KERNEL(prefix##_##type##_swap_ab_128x16, T, 128, 16, true)   \
  KERNEL(prefix##_##type##_swap_ab_128x32, T, 128, 32, true)   \
  KERNEL(prefix##_##type##_swap_ab_128x48, T, 128, 48, true)   \
  KERNEL(prefix##_##type##_swap_ab_128x64, T, 128, 64, true)   \
  KERNEL(prefix##_##type##_swap_ab_128x80, T, 128, 80, true)   \
  KERNEL(prefix##_##type##_swap_ab_128x104, T, 128, 104, true) \
  KERNEL(prefix##_##type##_swap_ab_128x152, T, 128, 152, true) \
  KERNEL(prefix##_##type##_swap_ab_256x104, T, 256, 104, true)
/// Of e4m3 operands; T is y's. All columns of a tile share their scale of w, and registers have room for a step's sums
/// beside the totals.
#define FARWARP_GEMM_FP8_OF(KERNEL, prefix, type, T)  \
  KERNEL(prefix##_##type##_64x64, T, 64, 64, false)   \
  KERNEL(prefix##_##type##_64x128, T, 64, 128, false) \
  KERNEL(prefix##_##type##_128x64, T, 128, 64, false) \
  KERNEL(prefix##_##type##_128x128, T, 128, 128, false)
#define FARWARP_GEMM_FP8(KERNEL) FARWARP_BOTH_TYPES(FARWARP_GEMM_FP8_OF, KERNEL, gemm_fp8)
#define FARWARP_GEMM_WGMMA(KERNEL) FARWARP_BOTH_TYPES(FARWARP_GEMM_WGMMA_OF, KERNEL, gemm)
#define FARWARP_GEMM_MFMA(KERNEL) FARWARP_MFMA_TILES(KERNEL, gemm_mfma)

namespace farwarp::gemm {

inline constexpr tile::Variant kWgmmaKernels[] = {FARWARP_GEMM_WGMMA(FARWARP_VARIANT)};
inline constexpr tile::Variant kFp8Kernels[] = {FARWARP_GEMM_FP8(FARWARP_VARIANT)};
inline constexpr tile::Variant kMfmaKernels[] = {FARWARP_GEMM_MFMA(FARWARP_VARIANT)};

}  // namespace farwarp::gemm
