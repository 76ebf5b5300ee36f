// The kernel of gemm-rs for CDNA that mutants run.
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_mfma.dev.h"

namespace gemm_rs = farwarp::FARWARP_TARGET::gemm_rs;

FARWARP_KERNEL(gemm_rs_mfma_bf16_64x128, gemm_rs::Args, farwarp::tile::kMfmaThreads) {
  gemm_rs::gemm_rs_mfma<farwarp::Bf16, farwarp::tile::kMfmaSmall>(args);
}
