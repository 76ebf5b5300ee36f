// The kernels of the MoE all-to-all that mutants of fp8 dispatch run.
#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace moe = farwarp::FARWARP_TARGET::moe;

FARWARP_KERNEL(moe_a2a_fused_bulk_fp8_rank_scale, moe::Args, farwarp::moe::kThreads) {
  moe::fused<farwarp::Bf16, moe::RankScale, moe::BulkWire<moe::AsFp8>>(args);
}
FARWARP_KERNEL(moe_a2a_fused_words_fp8_rank_scale, moe::Args, farwarp::moe::kThreads) {
  moe::fused<farwarp::Bf16, moe::RankScale, moe::WordWire<moe::AsFp8>>(args);
}
