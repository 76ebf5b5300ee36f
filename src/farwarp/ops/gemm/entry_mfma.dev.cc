// The kernels of gemm for CDNA: gemm_mfma_TYPE_ROWSxCOLUMNS, tiles of ROWS rows of x by COLUMNS rows of w.
#include "farwarp/ops/gemm/kernel_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::tile::kMfmaLarge;
using farwarp::tile::kMfmaSmall;
using farwarp::tile::kMfmaThreads;

FARWARP_KERNEL(gemm_mfma_bf16_256x128, Args, kMfmaThreads) { gemm_mfma<Bf16, kMfmaLarge>(args); }
FARWARP_KERNEL(gemm_mfma_bf16_64x128, Args, kMfmaThreads) { gemm_mfma<Bf16, kMfmaSmall>(args); }

FARWARP_KERNEL(gemm_mfma_fp16_256x128, Args, kMfmaThreads) { gemm_mfma<Half, kMfmaLarge>(args); }
FARWARP_KERNEL(gemm_mfma_fp16_64x128, Args, kMfmaThreads) { gemm_mfma<Half, kMfmaSmall>(args); }

}  // namespace farwarp::FARWARP_TARGET::gemm
