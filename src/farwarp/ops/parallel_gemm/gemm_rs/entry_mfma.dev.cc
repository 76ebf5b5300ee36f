// The kernels of gemm-rs for CDNA.
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_mfma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/variants.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

#define FARWARP_ENTRY(name, T, rows, columns, swap_ab) \
  FARWARP_KERNEL(name, Args, farwarp::tile::kMfmaThreads) { gemm_rs_mfma<T, farwarp::tile::mfma_shape(rows)>(args); }
FARWARP_GEMM_RS_MFMA(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
