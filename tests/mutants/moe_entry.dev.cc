// The kernels of the MoE all-to-all that mutants run: the fused form in each mode.
#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace moe = farwarp::FARWARP_TARGET::moe;

FARWARP_KERNEL(moe_a2a_fused_bulk_bf16_rank_scale, moe::Args, farwarp::moe::kThreads) {
  moe::fused<farwarp::Bf16, moe::RankScale, moe::BulkWire<moe::Unquantised>>(args);
}
FARWARP_KERNEL(moe_a2a_fused_words_bf16_rank_scale, moe::Args, farwarp::moe::kThreads) {
  moe::fused<farwarp::Bf16, moe::RankScale, moe::WordWire<moe::Unquantised>>(args);
}
