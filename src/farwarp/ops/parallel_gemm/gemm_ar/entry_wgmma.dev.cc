// The kernels of gemm-ar for Hopper, named as gemm-rs's: gemm_ar_..., boxes by owners; gemm_ar_words_..., words by owners;
// gemm_ar_one_shot_words_....
#include "farwarp/ops/parallel_gemm/gemm_ar/kernel_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using farwarp::tile::kWgmmaThreads;

FARWARP_KERNEL(gemm_ar_bf16_64, Args, kWgmmaThreads) { gemm_ar_wgmma<Bf16, 64, false>(args); }
FARWARP_KERNEL(gemm_ar_bf16_128, Args, kWgmmaThreads) { gemm_ar_wgmma<Bf16, 128, false>(args); }
FARWARP_KERNEL(gemm_ar_bf16_192, Args, kWgmmaThreads) { gemm_ar_wgmma<Bf16, 192, false>(args); }
FARWARP_KERNEL(gemm_ar_bf16_256, Args, kWgmmaThreads) { gemm_ar_wgmma<Bf16, 256, false>(args); }
FARWARP_KERNEL(gemm_ar_bf16_swap_ab_16, Args, kWgmmaThreads) { gemm_ar_wgmma<Bf16, 16, true>(args); }
FARWARP_KERNEL(gemm_ar_bf16_swap_ab_32, Args, kWgmmaThreads) { gemm_ar_wgmma<Bf16, 32, true>(args); }
FARWARP_KERNEL(gemm_ar_bf16_swap_ab_64, Args, kWgmmaThreads) { gemm_ar_wgmma<Bf16, 64, true>(args); }
FARWARP_KERNEL(gemm_ar_words_bf16_64, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Bf16, 64, false>(args); }
FARWARP_KERNEL(gemm_ar_words_bf16_128, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Bf16, 128, false>(args); }
FARWARP_KERNEL(gemm_ar_words_bf16_192, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Bf16, 192, false>(args); }
FARWARP_KERNEL(gemm_ar_words_bf16_256, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Bf16, 256, false>(args); }
FARWARP_KERNEL(gemm_ar_words_bf16_swap_ab_16, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Bf16, 16, true>(args); }
FARWARP_KERNEL(gemm_ar_words_bf16_swap_ab_32, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Bf16, 32, true>(args); }
FARWARP_KERNEL(gemm_ar_words_bf16_swap_ab_64, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Bf16, 64, true>(args); }
FARWARP_KERNEL(gemm_ar_one_shot_words_bf16_swap_ab_16, Args, kWgmmaThreads) {
  gemm_ar_one_shot_words_wgmma<Bf16, 16>(args);
}
FARWARP_KERNEL(gemm_ar_one_shot_words_bf16_swap_ab_32, Args, kWgmmaThreads) {
  gemm_ar_one_shot_words_wgmma<Bf16, 32>(args);
}
FARWARP_KERNEL(gemm_ar_one_shot_words_bf16_swap_ab_64, Args, kWgmmaThreads) {
  gemm_ar_one_shot_words_wgmma<Bf16, 64>(args);
}

FARWARP_KERNEL(gemm_ar_fp16_64, Args, kWgmmaThreads) { gemm_ar_wgmma<Half, 64, false>(args); }
FARWARP_KERNEL(gemm_ar_fp16_128, Args, kWgmmaThreads) { gemm_ar_wgmma<Half, 128, false>(args); }
FARWARP_KERNEL(gemm_ar_fp16_192, Args, kWgmmaThreads) { gemm_ar_wgmma<Half, 192, false>(args); }
FARWARP_KERNEL(gemm_ar_fp16_256, Args, kWgmmaThreads) { gemm_ar_wgmma<Half, 256, false>(args); }
FARWARP_KERNEL(gemm_ar_fp16_swap_ab_16, Args, kWgmmaThreads) { gemm_ar_wgmma<Half, 16, true>(args); }
FARWARP_KERNEL(gemm_ar_fp16_swap_ab_32, Args, kWgmmaThreads) { gemm_ar_wgmma<Half, 32, true>(args); }
FARWARP_KERNEL(gemm_ar_fp16_swap_ab_64, Args, kWgmmaThreads) { gemm_ar_wgmma<Half, 64, true>(args); }
FARWARP_KERNEL(gemm_ar_words_fp16_64, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Half, 64, false>(args); }
FARWARP_KERNEL(gemm_ar_words_fp16_128, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Half, 128, false>(args); }
FARWARP_KERNEL(gemm_ar_words_fp16_192, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Half, 192, false>(args); }
FARWARP_KERNEL(gemm_ar_words_fp16_256, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Half, 256, false>(args); }
FARWARP_KERNEL(gemm_ar_words_fp16_swap_ab_16, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Half, 16, true>(args); }
FARWARP_KERNEL(gemm_ar_words_fp16_swap_ab_32, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Half, 32, true>(args); }
FARWARP_KERNEL(gemm_ar_words_fp16_swap_ab_64, Args, kWgmmaThreads) { gemm_ar_words_wgmma<Half, 64, true>(args); }
FARWARP_KERNEL(gemm_ar_one_shot_words_fp16_swap_ab_16, Args, kWgmmaThreads) {
  gemm_ar_one_shot_words_wgmma<Half, 16>(args);
}
FARWARP_KERNEL(gemm_ar_one_shot_words_fp16_swap_ab_32, Args, kWgmmaThreads) {
  gemm_ar_one_shot_words_wgmma<Half, 32>(args);
}
FARWARP_KERNEL(gemm_ar_one_shot_words_fp16_swap_ab_64, Args, kWgmmaThreads) {
  gemm_ar_one_shot_words_wgmma<Half, 64>(args);
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
