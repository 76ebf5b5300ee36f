// The kernels of ag-gemm for CDNA.
#include "farwarp/ops/parallel_gemm/ag_gemm/kernel_mfma.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/variants.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

#define FARWARP_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kMfmaThreads) { ag_gemm_mfma<T, farwarp::tile::mfma_shape(rows)>(args); }
FARWARP_AG_GEMM_MFMA(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
