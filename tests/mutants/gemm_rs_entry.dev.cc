// The kernels of gemm-rs for Hopper that mutants run: narrow tiles, the widest, and both forms of words.
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_wgmma.dev.h"

namespace gemm_rs = farwarp::FARWARP_TARGET::gemm_rs;

FARWARP_KERNEL(gemm_rs_bf16_64, gemm_rs::Args, farwarp::tile::kWgmmaThreads) {
  gemm_rs::gemm_rs_wgmma<farwarp::Bf16, 64, false>(args);
}
FARWARP_KERNEL(gemm_rs_bf16_256, gemm_rs::Args, farwarp::tile::kWgmmaThreads) {
  gemm_rs::gemm_rs_wgmma<farwarp::Bf16, 256, false>(args);
}
FARWARP_KERNEL(gemm_rs_words_bf16_swap_ab_16, gemm_rs::Args, farwarp::tile::kWgmmaThreads) {
  gemm_rs::gemm_rs_words_wgmma<farwarp::Bf16, 16, true>(args);
}
FARWARP_KERNEL(gemm_rs_words_bf16_64, gemm_rs::Args, farwarp::tile::kWgmmaThreads) {
  gemm_rs::gemm_rs_words_wgmma<farwarp::Bf16, 64, false>(args);
}
