// The kernel of ag-gemm that mutants run on Hopper with few rows, in boxes.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_wgmma.dev.h"

namespace ag_gemm = farwarp::FARWARP_TARGET::ag_gemm;

FARWARP_KERNEL(ag_gemm_bf16_swap_ab_16, farwarp::ag_gemm::Args, farwarp::tile::kWgmmaThreads) {
  ag_gemm::ag_gemm_wgmma<farwarp::Bf16, 16, true>(args);
}
