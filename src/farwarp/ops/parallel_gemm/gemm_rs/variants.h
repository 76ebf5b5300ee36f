// The kernels of gemm-rs.
#pragma once

#include "farwarp/tile/gemm/variants.h"

#define FARWARP_GEMM_RS_BOXES(KERNEL) FARWARP_EVEN_TILES(KERNEL, gemm_rs) FARWARP_SWAP_AB_TILES(KERNEL, gemm_rs)
#define FARWARP_GEMM_RS_WORDS(KERNEL) \
  FARWARP_EVEN_TILES(KERNEL, gemm_rs_words) FARWARP_SWAP_AB_TILES(KERNEL, gemm_rs_words)
#define FARWARP_GEMM_RS_FETCH(KERNEL) FARWARP_EVEN_TILES(KERNEL, gemm_rs_fetch)
#define FARWARP_GEMM_RS_MFMA(KERNEL) FARWARP_MFMA_TILES(KERNEL, gemm_rs_mfma)

namespace farwarp::gemm_rs {

inline constexpr tile::Variant kBoxesKernels[] = {FARWARP_GEMM_RS_BOXES(FARWARP_VARIANT)};
inline constexpr tile::Variant kWordsKernels[] = {FARWARP_GEMM_RS_WORDS(FARWARP_VARIANT)};
inline constexpr tile::Variant kFetchKernels[] = {FARWARP_GEMM_RS_FETCH(FARWARP_VARIANT)};
inline constexpr tile::Variant kMfmaKernels[] = {FARWARP_GEMM_RS_MFMA(FARWARP_VARIANT)};

}  // namespace farwarp::gemm_rs
