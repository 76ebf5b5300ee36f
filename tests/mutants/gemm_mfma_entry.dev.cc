// The kernel of gemm that mutants run on CDNA: the small tile, which can be split.
#include "farwarp/ops/gemm/kernel_mfma.dev.h"

namespace gemm = farwarp::FARWARP_TARGET::gemm;

FARWARP_KERNEL(gemm_mfma_bf16_64x128, farwarp::gemm::Args, farwarp::tile::kMfmaThreads) {
  gemm::gemm_mfma<farwarp::Bf16, farwarp::tile::kMfmaSmall>(args);
}
