// The kernels of flash-decode for Hopper.
#include "farwarp/ops/flash_decode/kernel_wgmma.dev.h"
#include "farwarp/ops/flash_decode/variants.h"

namespace farwarp::FARWARP_TARGET::decode {

#define FARWARP_ENTRY(name, T, dim, rows, source, fp8) \
  FARWARP_KERNEL(name, Args, kThreads) { flash_decode<T, dim, rows, Source::source, fp8>(args); }
FARWARP_DECODE_WGMMA(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::decode
