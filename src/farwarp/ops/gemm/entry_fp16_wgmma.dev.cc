// The kernels of gemm for Hopper, fp16.
#include "farwarp/ops/gemm/kernel_wgmma.dev.h"
#include "farwarp/ops/gemm/variants.h"

namespace farwarp::FARWARP_TARGET::gemm {

#define FARWARP_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::wgmma_threads(rows)) { gemm_wgmma<T, columns, swap_ab, rows>(args); }
FARWARP_GEMM_WGMMA_OF(FARWARP_ENTRY, gemm, fp16, Half)

}  // namespace farwarp::FARWARP_TARGET::gemm
