// The kernels of grouped_gemm for Hopper with e4m3 operands.
#include "farwarp/ops/grouped_gemm/kernel_wgmma.dev.h"
#include "farwarp/ops/grouped_gemm/variants.h"

namespace farwarp::FARWARP_TARGET::grouped_gemm {

#define FARWARP_ENTRY(name, T, rows, columns, gated, fp8) \
  FARWARP_KERNEL(name, Args, farwarp::tile::wgmma_threads(rows)) { Kernel<T, columns, rows, gated, fp8>(args).run(); }
FARWARP_GROUPED_FP8(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::grouped_gemm
