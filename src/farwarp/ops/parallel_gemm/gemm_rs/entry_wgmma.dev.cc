// The kernels of gemm-rs for Hopper.
#include "farwarp/ops/parallel_gemm/gemm_rs/fetch_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/variants.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

#define FARWARP_BOXES_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kWgmmaThreads) { gemm_rs_wgmma<T, columns, swap_ab>(args); }
FARWARP_GEMM_RS_BOXES(FARWARP_BOXES_ENTRY)

#define FARWARP_WORDS_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kWgmmaThreads) { gemm_rs_words_wgmma<T, columns, swap_ab>(args); }
FARWARP_GEMM_RS_WORDS(FARWARP_WORDS_ENTRY)

#define FARWARP_FETCH_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kWgmmaThreads) { gemm_rs_fetch_wgmma<T, columns>(args); }
FARWARP_GEMM_RS_FETCH(FARWARP_FETCH_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
