// The kernels of gemm-ar for Hopper.
#include "farwarp/ops/parallel_gemm/gemm_ar/kernel_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/variants.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

#define FARWARP_BOXES_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kWgmmaThreads) { gemm_ar_wgmma<T, columns, swap_ab>(args); }
FARWARP_GEMM_AR_BOXES(FARWARP_BOXES_ENTRY)

#define FARWARP_WORDS_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kWgmmaThreads) { gemm_ar_words_wgmma<T, columns, swap_ab>(args); }
FARWARP_GEMM_AR_WORDS(FARWARP_WORDS_ENTRY)

#define FARWARP_ONE_SHOT_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kWgmmaThreads) { gemm_ar_one_shot_words_wgmma<T, columns>(args); }
FARWARP_GEMM_AR_ONE_SHOT(FARWARP_ONE_SHOT_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
