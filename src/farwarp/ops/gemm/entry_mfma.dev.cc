// The kernels of gemm for CDNA.
#include "farwarp/ops/gemm/kernel_mfma.dev.h"
#include "farwarp/ops/gemm/variants.h"

namespace farwarp::FARWARP_TARGET::gemm {

#define FARWARP_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kMfmaThreads) { gemm_mfma<T, farwarp::tile::mfma_shape(rows)>(args); }
FARWARP_GEMM_MFMA(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::gemm
