// The kernel of ag-gemm that mutants run on Hopper: the narrowest tile.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_wgmma.dev.h"

namespace ag_gemm = farwarp::FARWARP_TARGET::ag_gemm;

FARWARP_KERNEL(ag_gemm_bf16_64, farwarp::ag_gemm::Args, farwarp::tile::kWgmmaThreads) {
  ag_gemm::ag_gemm_wgmma<farwarp::Bf16, 64, false>(args);
}
