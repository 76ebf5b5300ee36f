// The kernels of gemm for Hopper with e4m3 operands.
#include "farwarp/ops/gemm/kernel_wgmma.dev.h"
#include "farwarp/ops/gemm/variants.h"

namespace farwarp::FARWARP_TARGET::gemm {

#define FARWARP_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::wgmma_threads(rows)) { gemm_wgmma<T, columns, swap_ab, rows, true>(args); }
FARWARP_GEMM_FP8(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::gemm
