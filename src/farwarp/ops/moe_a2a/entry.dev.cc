// The kernels of the MoE all-to-all, compiled once per target. Names: moe_a2a_fused_<mode>_<dtype>_<expert>,
// moe_a2a_dispatch[_<half>]_<mode>[_fp8], moe_a2a_combine[_<half>]_<dtype>. With dtype fp8 rows are dispatched as e4m3; sums are bf16.
#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace {
namespace target = farwarp::FARWARP_TARGET;
using farwarp::Bf16;
using farwarp::moe::Args;
using farwarp::moe::kThreads;
using Fp16 = farwarp::Half;
using Bulk = target::moe::BulkWire<target::moe::Unquantised>;
using Fp8Bulk = target::moe::BulkWire<target::moe::AsFp8>;
using target::moe::Part;
using target::moe::RankScale;
using target::moe::TableExpert;
using Words = target::moe::WordWire<target::moe::Unquantised>;
using Fp8Words = target::moe::WordWire<target::moe::AsFp8>;
}  // namespace

FARWARP_KERNEL(moe_a2a_fused_words_bf16_rank_scale, Args, kThreads) {
  target::moe::fused<Bf16, RankScale, Words>(args);
}
FARWARP_KERNEL(moe_a2a_fused_words_bf16_table, Args, kThreads) { target::moe::fused<Bf16, TableExpert, Words>(args); }
FARWARP_KERNEL(moe_a2a_fused_words_fp16_rank_scale, Args, kThreads) {
  target::moe::fused<Fp16, RankScale, Words>(args);
}
FARWARP_KERNEL(moe_a2a_fused_words_fp16_table, Args, kThreads) { target::moe::fused<Fp16, TableExpert, Words>(args); }
FARWARP_KERNEL(moe_a2a_fused_words_fp8_rank_scale, Args, kThreads) {
  target::moe::fused<Bf16, RankScale, Fp8Words>(args);
}
FARWARP_KERNEL(moe_a2a_fused_words_fp8_table, Args, kThreads) { target::moe::fused<Bf16, TableExpert, Fp8Words>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_bf16_rank_scale, Args, kThreads) { target::moe::fused<Bf16, RankScale, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_bf16_table, Args, kThreads) { target::moe::fused<Bf16, TableExpert, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_fp16_rank_scale, Args, kThreads) { target::moe::fused<Fp16, RankScale, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_fp16_table, Args, kThreads) { target::moe::fused<Fp16, TableExpert, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_fp8_rank_scale, Args, kThreads) {
  target::moe::fused<Bf16, RankScale, Fp8Bulk>(args);
}
FARWARP_KERNEL(moe_a2a_fused_bulk_fp8_table, Args, kThreads) { target::moe::fused<Bf16, TableExpert, Fp8Bulk>(args); }

FARWARP_KERNEL(moe_a2a_dispatch_words, Args, kThreads) { target::moe::dispatch<Words, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_words, Args, kThreads) { target::moe::dispatch<Words, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_words, Args, kThreads) { target::moe::dispatch<Words, Part::receive>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_words_fp8, Args, kThreads) { target::moe::dispatch<Fp8Words, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_words_fp8, Args, kThreads) { target::moe::dispatch<Fp8Words, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_words_fp8, Args, kThreads) {
  target::moe::dispatch<Fp8Words, Part::receive>(args);
}
FARWARP_KERNEL(moe_a2a_dispatch_bulk, Args, kThreads) { target::moe::dispatch<Bulk, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_bulk, Args, kThreads) { target::moe::dispatch<Bulk, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_bulk, Args, kThreads) { target::moe::dispatch<Bulk, Part::receive>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_bulk_fp8, Args, kThreads) { target::moe::dispatch<Fp8Bulk, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_bulk_fp8, Args, kThreads) { target::moe::dispatch<Fp8Bulk, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_bulk_fp8, Args, kThreads) { target::moe::dispatch<Fp8Bulk, Part::receive>(args); }

FARWARP_KERNEL(moe_a2a_combine_bf16, Args, kThreads) { target::moe::combine<Bf16, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_bf16, Args, kThreads) { target::moe::combine<Bf16, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_bf16, Args, kThreads) { target::moe::combine<Bf16, Part::receive>(args); }
FARWARP_KERNEL(moe_a2a_combine_fp16, Args, kThreads) { target::moe::combine<Fp16, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_fp16, Args, kThreads) { target::moe::combine<Fp16, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_fp16, Args, kThreads) { target::moe::combine<Fp16, Part::receive>(args); }
