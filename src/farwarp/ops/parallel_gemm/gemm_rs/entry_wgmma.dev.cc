// The kernels of gemm-rs for Hopper: gemm_rs_TYPE_COLUMNS, tiles of 128 rows of x by COLUMNS rows of w, and
// gemm_rs_TYPE_swap_ab_COLUMNS, tiles of 128 rows of w by COLUMNS rows of x; gemm_rs_words_TYPE_..., the same whose partial sums go as words.
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::tile::kWgmmaThreads;

FARWARP_KERNEL(gemm_rs_bf16_64, Args, kWgmmaThreads) { gemm_rs_wgmma<Bf16, 64, false>(args); }
FARWARP_KERNEL(gemm_rs_bf16_128, Args, kWgmmaThreads) { gemm_rs_wgmma<Bf16, 128, false>(args); }
FARWARP_KERNEL(gemm_rs_bf16_192, Args, kWgmmaThreads) { gemm_rs_wgmma<Bf16, 192, false>(args); }
FARWARP_KERNEL(gemm_rs_bf16_256, Args, kWgmmaThreads) { gemm_rs_wgmma<Bf16, 256, false>(args); }
FARWARP_KERNEL(gemm_rs_bf16_swap_ab_16, Args, kWgmmaThreads) { gemm_rs_wgmma<Bf16, 16, true>(args); }
FARWARP_KERNEL(gemm_rs_bf16_swap_ab_32, Args, kWgmmaThreads) { gemm_rs_wgmma<Bf16, 32, true>(args); }
FARWARP_KERNEL(gemm_rs_bf16_swap_ab_64, Args, kWgmmaThreads) { gemm_rs_wgmma<Bf16, 64, true>(args); }
FARWARP_KERNEL(gemm_rs_words_bf16_64, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Bf16, 64, false>(args); }
FARWARP_KERNEL(gemm_rs_words_bf16_128, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Bf16, 128, false>(args); }
FARWARP_KERNEL(gemm_rs_words_bf16_192, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Bf16, 192, false>(args); }
FARWARP_KERNEL(gemm_rs_words_bf16_256, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Bf16, 256, false>(args); }
FARWARP_KERNEL(gemm_rs_words_bf16_swap_ab_16, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Bf16, 16, true>(args); }
FARWARP_KERNEL(gemm_rs_words_bf16_swap_ab_32, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Bf16, 32, true>(args); }
FARWARP_KERNEL(gemm_rs_words_bf16_swap_ab_64, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Bf16, 64, true>(args); }

FARWARP_KERNEL(gemm_rs_fp16_64, Args, kWgmmaThreads) { gemm_rs_wgmma<Half, 64, false>(args); }
FARWARP_KERNEL(gemm_rs_fp16_128, Args, kWgmmaThreads) { gemm_rs_wgmma<Half, 128, false>(args); }
FARWARP_KERNEL(gemm_rs_fp16_192, Args, kWgmmaThreads) { gemm_rs_wgmma<Half, 192, false>(args); }
FARWARP_KERNEL(gemm_rs_fp16_256, Args, kWgmmaThreads) { gemm_rs_wgmma<Half, 256, false>(args); }
FARWARP_KERNEL(gemm_rs_fp16_swap_ab_16, Args, kWgmmaThreads) { gemm_rs_wgmma<Half, 16, true>(args); }
FARWARP_KERNEL(gemm_rs_fp16_swap_ab_32, Args, kWgmmaThreads) { gemm_rs_wgmma<Half, 32, true>(args); }
FARWARP_KERNEL(gemm_rs_fp16_swap_ab_64, Args, kWgmmaThreads) { gemm_rs_wgmma<Half, 64, true>(args); }
FARWARP_KERNEL(gemm_rs_words_fp16_64, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Half, 64, false>(args); }
FARWARP_KERNEL(gemm_rs_words_fp16_128, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Half, 128, false>(args); }
FARWARP_KERNEL(gemm_rs_words_fp16_192, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Half, 192, false>(args); }
FARWARP_KERNEL(gemm_rs_words_fp16_256, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Half, 256, false>(args); }
FARWARP_KERNEL(gemm_rs_words_fp16_swap_ab_16, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Half, 16, true>(args); }
FARWARP_KERNEL(gemm_rs_words_fp16_swap_ab_32, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Half, 32, true>(args); }
FARWARP_KERNEL(gemm_rs_words_fp16_swap_ab_64, Args, kWgmmaThreads) { gemm_rs_words_wgmma<Half, 64, true>(args); }

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
