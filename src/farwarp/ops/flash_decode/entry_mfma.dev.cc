// The kernels of flash-decode for CDNA.
#include "farwarp/ops/flash_decode/kernel_mfma.dev.h"
#include "farwarp/ops/flash_decode/variants.h"

namespace farwarp::FARWARP_TARGET::decode {

#define FARWARP_ENTRY(name, T, dim, rows, source, fp8) \
  FARWARP_KERNEL(name, Args, kMfmaThreads) { flash_decode_mfma<T, dim, fp8>(args); }
FARWARP_DECODE_MFMA(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::decode
