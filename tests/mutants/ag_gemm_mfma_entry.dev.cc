// The kernel of ag-gemm that mutants run on CDNA: the tile for few rows.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_mfma.dev.h"

namespace ag_gemm = farwarp::FARWARP_TARGET::ag_gemm;

FARWARP_KERNEL(ag_gemm_mfma_bf16_64x128, farwarp::ag_gemm::Args, farwarp::tile::kMfmaThreads) {
  ag_gemm::ag_gemm_mfma<farwarp::Bf16, farwarp::tile::kMfmaSmall>(args);
}
