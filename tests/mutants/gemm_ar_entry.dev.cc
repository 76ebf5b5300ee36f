// The kernels of gemm-ar that mutants run on Hopper: words to all, words by owners, and boxes.
#include "farwarp/ops/parallel_gemm/gemm_ar/kernel_wgmma.dev.h"

namespace gemm_ar = farwarp::FARWARP_TARGET::gemm_ar;

FARWARP_KERNEL(gemm_ar_bf16_64, farwarp::gemm_ar::Args, farwarp::tile::kWgmmaThreads) {
  gemm_ar::gemm_ar_wgmma<farwarp::Bf16, 64, false>(args);
}
FARWARP_KERNEL(gemm_ar_words_bf16_64, farwarp::gemm_ar::Args, farwarp::tile::kWgmmaThreads) {
  gemm_ar::gemm_ar_words_wgmma<farwarp::Bf16, 64, false>(args);
}
FARWARP_KERNEL(gemm_ar_one_shot_words_bf16_swap_ab_16, farwarp::gemm_ar::Args, farwarp::tile::kWgmmaThreads) {
  gemm_ar::gemm_ar_one_shot_words_wgmma<farwarp::Bf16, 16>(args);
}
FARWARP_KERNEL(gemm_ar_words_bf16_swap_ab_64, farwarp::gemm_ar::Args, farwarp::tile::kWgmmaThreads) {
  gemm_ar::gemm_ar_words_wgmma<farwarp::Bf16, 64, true>(args);
}
