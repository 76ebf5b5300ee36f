// The kernels of gemm-ar that mutants run on Hopper: words, and owners.
#include "farwarp/ops/parallel_gemm/gemm_ar/kernel_wgmma.dev.h"

namespace gemm_ar = farwarp::FARWARP_TARGET::gemm_ar;

FARWARP_KERNEL(gemm_ar_bf16_64, farwarp::gemm_ar::Args, farwarp::tile::kWgmmaThreads) {
  gemm_ar::gemm_ar_wgmma<farwarp::Bf16, 64, false>(args);
}
FARWARP_KERNEL(gemm_ar_bf16_few_16, farwarp::gemm_ar::Args, farwarp::tile::kWgmmaThreads) {
  gemm_ar::gemm_ar_wgmma<farwarp::Bf16, 16, true>(args);
}
