// The kernels of moe_layer for Hopper.
#include "farwarp/ops/moe_layer/kernel_wgmma.dev.h"
#include "farwarp/ops/moe_layer/variants.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

#define FARWARP_ENTRY(name, T, rows, columns) \
  FARWARP_KERNEL(name, Args, farwarp::tile::wgmma_threads(rows)) { Kernel<T, columns, rows>(args).run(); }
FARWARP_MOE_LAYER(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::moe_layer
