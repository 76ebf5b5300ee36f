// The kernels of ag-gemm for Hopper that exchange boxes.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/variants.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

#define FARWARP_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kWgmmaThreads) { ag_gemm_wgmma<T, columns, swap_ab>(args); }
FARWARP_AG_GEMM_BOXES(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
