// The kernels of gemm that mutants run: narrow tiles, and the widest.
#include "farwarp/ops/gemm/kernel_wgmma.dev.h"

namespace gemm = farwarp::FARWARP_TARGET::gemm;

FARWARP_KERNEL(gemm_bf16_64, gemm::Args, farwarp::tile::kWgmmaThreads) {
  gemm::gemm_wgmma<farwarp::Bf16, 64, false>(args);
}
FARWARP_KERNEL(gemm_bf16_256, gemm::Args, farwarp::tile::kWgmmaThreads) {
  gemm::gemm_wgmma<farwarp::Bf16, 256, false>(args);
}
