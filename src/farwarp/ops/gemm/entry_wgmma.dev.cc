// The kernels of gemm for Hopper: gemm_TYPE_COLUMNS, tiles of 128 rows of x by COLUMNS rows of w; gemm_TYPE_tall_COLUMNS, tiles of 256
// rows of x; and gemm_TYPE_swap_ab_COLUMNS, tiles of 128 rows of w by COLUMNS rows of x.
#include "farwarp/ops/gemm/kernel_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::tile::kWgmmaTallRows;
using farwarp::tile::kWgmmaThreads;

FARWARP_KERNEL(gemm_bf16_64, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 64, false>(args); }
FARWARP_KERNEL(gemm_bf16_96, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 96, false>(args); }
FARWARP_KERNEL(gemm_bf16_128, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 128, false>(args); }
FARWARP_KERNEL(gemm_bf16_160, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 160, false>(args); }
FARWARP_KERNEL(gemm_bf16_192, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 192, false>(args); }
FARWARP_KERNEL(gemm_bf16_224, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 224, false>(args); }
FARWARP_KERNEL(gemm_bf16_256, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 256, false>(args); }
FARWARP_KERNEL(gemm_bf16_tall_192, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 192, false, kWgmmaTallRows>(args); }
FARWARP_KERNEL(gemm_bf16_swap_ab_16, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 16, true>(args); }
FARWARP_KERNEL(gemm_bf16_swap_ab_32, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 32, true>(args); }
FARWARP_KERNEL(gemm_bf16_swap_ab_64, Args, kWgmmaThreads) { gemm_wgmma<Bf16, 64, true>(args); }

FARWARP_KERNEL(gemm_fp16_64, Args, kWgmmaThreads) { gemm_wgmma<Half, 64, false>(args); }
FARWARP_KERNEL(gemm_fp16_96, Args, kWgmmaThreads) { gemm_wgmma<Half, 96, false>(args); }
FARWARP_KERNEL(gemm_fp16_128, Args, kWgmmaThreads) { gemm_wgmma<Half, 128, false>(args); }
FARWARP_KERNEL(gemm_fp16_160, Args, kWgmmaThreads) { gemm_wgmma<Half, 160, false>(args); }
FARWARP_KERNEL(gemm_fp16_192, Args, kWgmmaThreads) { gemm_wgmma<Half, 192, false>(args); }
FARWARP_KERNEL(gemm_fp16_224, Args, kWgmmaThreads) { gemm_wgmma<Half, 224, false>(args); }
FARWARP_KERNEL(gemm_fp16_256, Args, kWgmmaThreads) { gemm_wgmma<Half, 256, false>(args); }
FARWARP_KERNEL(gemm_fp16_tall_192, Args, kWgmmaThreads) { gemm_wgmma<Half, 192, false, kWgmmaTallRows>(args); }
FARWARP_KERNEL(gemm_fp16_swap_ab_16, Args, kWgmmaThreads) { gemm_wgmma<Half, 16, true>(args); }
FARWARP_KERNEL(gemm_fp16_swap_ab_32, Args, kWgmmaThreads) { gemm_wgmma<Half, 32, true>(args); }
FARWARP_KERNEL(gemm_fp16_swap_ab_64, Args, kWgmmaThreads) { gemm_wgmma<Half, 64, true>(args); }

}  // namespace farwarp::FARWARP_TARGET::gemm
