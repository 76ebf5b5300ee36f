// The kernels of ag-gemm. There are none for words with tiles of 256 columns: the sums leave no registers to the warps
// that load words.
#pragma once

#include "farwarp/tile/gemm/variants.h"

#define FARWARP_AG_GEMM_BOXES(KERNEL) FARWARP_EVEN_TILES(KERNEL, ag_gemm) FARWARP_SWAP_AB_TILES(KERNEL, ag_gemm)
#define FARWARP_AG_GEMM_WORDS(KERNEL) \
  FARWARP_NARROW_TILES(KERNEL, ag_gemm_words) FARWARP_SWAP_AB_TILES(KERNEL, ag_gemm_words)
#define FARWARP_AG_GEMM_MFMA(KERNEL) FARWARP_MFMA_TILES(KERNEL, ag_gemm_mfma)

namespace farwarp::ag_gemm {

inline constexpr tile::Variant kBoxesKernels[] = {FARWARP_AG_GEMM_BOXES(FARWARP_VARIANT)};
inline constexpr tile::Variant kWordsKernels[] = {FARWARP_AG_GEMM_WORDS(FARWARP_VARIANT)};
inline constexpr tile::Variant kMfmaKernels[] = {FARWARP_AG_GEMM_MFMA(FARWARP_VARIANT)};

}  // namespace farwarp::ag_gemm
