// The kernels of the MoE all-to-all that mutants of the split form run.
#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace moe = farwarp::FARWARP_TARGET::moe;

FARWARP_KERNEL(moe_a2a_dispatch_words, moe::Args, farwarp::moe::kThreads) {
  moe::dispatch<moe::WordWire<moe::Unquantised>, moe::Part::both>(args);
}
