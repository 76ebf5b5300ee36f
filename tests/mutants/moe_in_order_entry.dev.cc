// The kernels of the MoE all-to-all that mutants of the dispatch with senders run.
#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace moe = farwarp::FARWARP_TARGET::moe;

FARWARP_KERNEL(moe_a2a_dispatch_bulk_in_order, moe::Args, farwarp::moe::kThreads) {
  moe::dispatch<moe::BulkWire<moe::AsTheyAre>, moe::Part::both, moe::Sending::in_order>(args);
}
