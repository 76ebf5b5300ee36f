// The kernels of gemm.
#pragma once

#include "farwarp/tile/gemm/variants.h"

#define FARWARP_GEMM_WGMMA(KERNEL) FARWARP_ALL_TILES(KERNEL, gemm) FARWARP_SWAP_AB_TILES(KERNEL, gemm)
#define FARWARP_GEMM_MFMA(KERNEL) FARWARP_MFMA_TILES(KERNEL, gemm_mfma)

namespace farwarp::gemm {

inline constexpr tile::Variant kWgmmaKernels[] = {FARWARP_GEMM_WGMMA(FARWARP_VARIANT)};
inline constexpr tile::Variant kMfmaKernels[] = {FARWARP_GEMM_MFMA(FARWARP_VARIANT)};

}  // namespace farwarp::gemm
