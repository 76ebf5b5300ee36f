// The kernels of attention for Hopper.
#include "farwarp/ops/attention/kernel_wgmma.dev.h"
#include "farwarp/ops/attention/variants.h"

namespace farwarp::FARWARP_TARGET::attention {

#define FARWARP_ENTRY(name, T, head_dim, keys, warpgroups, capped) \
  FARWARP_KERNEL(name, Args, wgmma_threads(warpgroups)) {          \
    attention_wgmma<T, head_dim, keys, warpgroups, capped>(args);  \
  }
FARWARP_ATTENTION_WGMMA(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::attention
