// The kernels of gemm-ar: two-shot by boxes, two-shot by words, and one-shot by words.
#pragma once

#include "farwarp/tile/gemm/variants.h"

#define FARWARP_GEMM_AR_BOXES(KERNEL) FARWARP_EVEN_TILES(KERNEL, gemm_ar) FARWARP_SWAP_AB_TILES(KERNEL, gemm_ar)
#define FARWARP_GEMM_AR_WORDS(KERNEL) \
  FARWARP_EVEN_TILES(KERNEL, gemm_ar_words) FARWARP_SWAP_AB_TILES(KERNEL, gemm_ar_words)
#define FARWARP_GEMM_AR_ONE_SHOT(KERNEL) FARWARP_SWAP_AB_TILES(KERNEL, gemm_ar_one_shot_words)
#define FARWARP_GEMM_AR_MFMA(KERNEL) FARWARP_MFMA_TILES(KERNEL, gemm_ar_mfma)

namespace farwarp::gemm_ar {

inline constexpr tile::Variant kBoxesKernels[] = {FARWARP_GEMM_AR_BOXES(FARWARP_VARIANT)};
inline constexpr tile::Variant kWordsKernels[] = {FARWARP_GEMM_AR_WORDS(FARWARP_VARIANT)};
inline constexpr tile::Variant kOneShotKernels[] = {FARWARP_GEMM_AR_ONE_SHOT(FARWARP_VARIANT)};
inline constexpr tile::Variant kMfmaKernels[] = {FARWARP_GEMM_AR_MFMA(FARWARP_VARIANT)};

}  // namespace farwarp::gemm_ar
