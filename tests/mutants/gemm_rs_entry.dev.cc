// The kernels of gemm-rs for Hopper that mutants run: narrow tiles, the widest, and packets.
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_wgmma.dev.h"

namespace gemm_rs = farwarp::FARWARP_TARGET::gemm_rs;

FARWARP_KERNEL(gemm_rs_bf16_64, gemm_rs::Args, farwarp::tile::kWgmmaThreads) {
  gemm_rs::gemm_rs_wgmma<farwarp::Bf16, 64, false>(args);
}
FARWARP_KERNEL(gemm_rs_bf16_256, gemm_rs::Args, farwarp::tile::kWgmmaThreads) {
  gemm_rs::gemm_rs_wgmma<farwarp::Bf16, 256, false>(args);
}
FARWARP_KERNEL(gemm_rs_packets_bf16_few_16, gemm_rs::Args, farwarp::tile::kWgmmaThreads) {
  gemm_rs::gemm_rs_packets_wgmma<farwarp::Bf16, 16>(args);
}
