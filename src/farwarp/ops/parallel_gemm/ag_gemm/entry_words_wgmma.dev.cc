// The kernels of ag-gemm for Hopper that exchange x as words, named as gemm's: TYPE_COLUMNS, and TYPE_swap_ab_COLUMNS with rows of w as rows of tiles.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_words_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using namespace farwarp::ag_gemm;

FARWARP_KERNEL(ag_gemm_words_bf16_64, Args, words_threads(64)) { ag_gemm_words<Bf16, 64, false>(args); }
FARWARP_KERNEL(ag_gemm_words_bf16_128, Args, words_threads(128)) { ag_gemm_words<Bf16, 128, false>(args); }
FARWARP_KERNEL(ag_gemm_words_bf16_192, Args, words_threads(192)) { ag_gemm_words<Bf16, 192, false>(args); }
FARWARP_KERNEL(ag_gemm_words_bf16_swap_ab_16, Args, words_threads(16)) { ag_gemm_words<Bf16, 16, true>(args); }
FARWARP_KERNEL(ag_gemm_words_bf16_swap_ab_32, Args, words_threads(32)) { ag_gemm_words<Bf16, 32, true>(args); }
FARWARP_KERNEL(ag_gemm_words_bf16_swap_ab_64, Args, words_threads(64)) { ag_gemm_words<Bf16, 64, true>(args); }

FARWARP_KERNEL(ag_gemm_words_fp16_64, Args, words_threads(64)) { ag_gemm_words<Half, 64, false>(args); }
FARWARP_KERNEL(ag_gemm_words_fp16_128, Args, words_threads(128)) { ag_gemm_words<Half, 128, false>(args); }
FARWARP_KERNEL(ag_gemm_words_fp16_192, Args, words_threads(192)) { ag_gemm_words<Half, 192, false>(args); }
FARWARP_KERNEL(ag_gemm_words_fp16_swap_ab_16, Args, words_threads(16)) { ag_gemm_words<Half, 16, true>(args); }
FARWARP_KERNEL(ag_gemm_words_fp16_swap_ab_32, Args, words_threads(32)) { ag_gemm_words<Half, 32, true>(args); }
FARWARP_KERNEL(ag_gemm_words_fp16_swap_ab_64, Args, words_threads(64)) { ag_gemm_words<Half, 64, true>(args); }

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
