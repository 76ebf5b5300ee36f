// The kernels of gemm-ar for CDNA.
#include "farwarp/ops/parallel_gemm/gemm_ar/kernel_mfma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/variants.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

#define FARWARP_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kMfmaThreads) { gemm_ar_mfma<T, farwarp::tile::mfma_shape(rows)>(args); }
FARWARP_GEMM_AR_MFMA(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
