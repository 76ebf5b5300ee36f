// The kernels of ag-gemm for Hopper that exchange words.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_words_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/variants.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

#define FARWARP_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::ag_gemm::words_threads(columns)) { ag_gemm_words<T, columns, swap_ab>(args); }
FARWARP_AG_GEMM_WORDS(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
