// The kernels of attention for CDNA.
#include "farwarp/ops/attention/kernel_mfma.dev.h"
#include "farwarp/ops/attention/variants.h"

namespace farwarp::FARWARP_TARGET::attention {

#define FARWARP_ENTRY(name, T, head_dim, keys) \
  FARWARP_KERNEL(name, Args, kMfmaThreads) { attention_mfma<T, head_dim, keys>(args); }
FARWARP_ATTENTION_MFMA(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::attention
