// The kernels of ag-gemm for CDNA, named as gemm's: mfma_TYPE_ROWSxCOLUMNS.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using farwarp::tile::kMfmaLarge;
using farwarp::tile::kMfmaSmall;
using farwarp::tile::kMfmaThreads;

FARWARP_KERNEL(ag_gemm_mfma_bf16_256x128, Args, kMfmaThreads) { ag_gemm_mfma<Bf16, kMfmaLarge>(args); }
FARWARP_KERNEL(ag_gemm_mfma_bf16_64x128, Args, kMfmaThreads) { ag_gemm_mfma<Bf16, kMfmaSmall>(args); }

FARWARP_KERNEL(ag_gemm_mfma_fp16_256x128, Args, kMfmaThreads) { ag_gemm_mfma<Half, kMfmaLarge>(args); }
FARWARP_KERNEL(ag_gemm_mfma_fp16_64x128, Args, kMfmaThreads) { ag_gemm_mfma<Half, kMfmaSmall>(args); }

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
