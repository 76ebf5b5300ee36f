// The kernels of ag-gemm for Hopper, named as gemm's: TYPE_COLUMNS, and TYPE_swap_ab_COLUMNS with rows of w as rows of tiles.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using farwarp::tile::kWgmmaThreads;

FARWARP_KERNEL(ag_gemm_bf16_64, Args, kWgmmaThreads) { ag_gemm_wgmma<Bf16, 64, false>(args); }
FARWARP_KERNEL(ag_gemm_bf16_128, Args, kWgmmaThreads) { ag_gemm_wgmma<Bf16, 128, false>(args); }
FARWARP_KERNEL(ag_gemm_bf16_192, Args, kWgmmaThreads) { ag_gemm_wgmma<Bf16, 192, false>(args); }
FARWARP_KERNEL(ag_gemm_bf16_256, Args, kWgmmaThreads) { ag_gemm_wgmma<Bf16, 256, false>(args); }
FARWARP_KERNEL(ag_gemm_bf16_swap_ab_16, Args, kWgmmaThreads) { ag_gemm_wgmma<Bf16, 16, true>(args); }
FARWARP_KERNEL(ag_gemm_bf16_swap_ab_32, Args, kWgmmaThreads) { ag_gemm_wgmma<Bf16, 32, true>(args); }
FARWARP_KERNEL(ag_gemm_bf16_swap_ab_64, Args, kWgmmaThreads) { ag_gemm_wgmma<Bf16, 64, true>(args); }

FARWARP_KERNEL(ag_gemm_fp16_64, Args, kWgmmaThreads) { ag_gemm_wgmma<Half, 64, false>(args); }
FARWARP_KERNEL(ag_gemm_fp16_128, Args, kWgmmaThreads) { ag_gemm_wgmma<Half, 128, false>(args); }
FARWARP_KERNEL(ag_gemm_fp16_192, Args, kWgmmaThreads) { ag_gemm_wgmma<Half, 192, false>(args); }
FARWARP_KERNEL(ag_gemm_fp16_256, Args, kWgmmaThreads) { ag_gemm_wgmma<Half, 256, false>(args); }
FARWARP_KERNEL(ag_gemm_fp16_swap_ab_16, Args, kWgmmaThreads) { ag_gemm_wgmma<Half, 16, true>(args); }
FARWARP_KERNEL(ag_gemm_fp16_swap_ab_32, Args, kWgmmaThreads) { ag_gemm_wgmma<Half, 32, true>(args); }
FARWARP_KERNEL(ag_gemm_fp16_swap_ab_64, Args, kWgmmaThreads) { ag_gemm_wgmma<Half, 64, true>(args); }

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
