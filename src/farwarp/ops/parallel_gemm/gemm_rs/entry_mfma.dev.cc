// The kernels of gemm-rs for CDNA: gemm_rs_mfma_TYPE_ROWSxCOLUMNS, tiles of ROWS rows of x by COLUMNS rows of w.
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::tile::kMfmaLarge;
using farwarp::tile::kMfmaSmall;
using farwarp::tile::kMfmaThreads;

FARWARP_KERNEL(gemm_rs_mfma_bf16_256x128, Args, kMfmaThreads) { gemm_rs_mfma<Bf16, kMfmaLarge>(args); }
FARWARP_KERNEL(gemm_rs_mfma_bf16_64x128, Args, kMfmaThreads) { gemm_rs_mfma<Bf16, kMfmaSmall>(args); }

FARWARP_KERNEL(gemm_rs_mfma_fp16_256x128, Args, kMfmaThreads) { gemm_rs_mfma<Half, kMfmaLarge>(args); }
FARWARP_KERNEL(gemm_rs_mfma_fp16_64x128, Args, kMfmaThreads) { gemm_rs_mfma<Half, kMfmaSmall>(args); }

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
