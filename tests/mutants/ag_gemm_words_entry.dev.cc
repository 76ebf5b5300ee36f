// The kernels of ag-gemm that mutants run on Hopper where x crosses as words.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_words_wgmma.dev.h"

namespace ag_gemm = farwarp::FARWARP_TARGET::ag_gemm;

FARWARP_KERNEL(ag_gemm_words_bf16_64, farwarp::ag_gemm::Args, farwarp::ag_gemm::words_threads(64)) {
  ag_gemm::ag_gemm_words<farwarp::Bf16, 64, false>(args);
}
FARWARP_KERNEL(ag_gemm_words_bf16_swap_ab_16, farwarp::ag_gemm::Args, farwarp::ag_gemm::words_threads(16)) {
  ag_gemm::ag_gemm_words<farwarp::Bf16, 16, true>(args);
}
