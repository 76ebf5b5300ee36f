// The kernels of gemm-ar for CDNA, named as gemm-rs's.
#include "farwarp/ops/parallel_gemm/gemm_ar/kernel_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using farwarp::tile::kMfmaLarge;
using farwarp::tile::kMfmaSmall;
using farwarp::tile::kMfmaThreads;

FARWARP_KERNEL(gemm_ar_mfma_bf16_256x128, Args, kMfmaThreads) { gemm_ar_mfma<Bf16, kMfmaLarge>(args); }
FARWARP_KERNEL(gemm_ar_mfma_bf16_64x128, Args, kMfmaThreads) { gemm_ar_mfma<Bf16, kMfmaSmall>(args); }

FARWARP_KERNEL(gemm_ar_mfma_fp16_256x128, Args, kMfmaThreads) { gemm_ar_mfma<Half, kMfmaLarge>(args); }
FARWARP_KERNEL(gemm_ar_mfma_fp16_64x128, Args, kMfmaThreads) { gemm_ar_mfma<Half, kMfmaSmall>(args); }

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
