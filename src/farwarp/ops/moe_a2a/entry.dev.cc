// The kernels of the MoE all-to-all, compiled once per target. Names: moe_a2a_fused_<mode>_<dtype>_<expert>,
// moe_a2a_dispatch[_<half>]_<mode>[_fp8][_in_order], moe_a2a_combine[_<half>]_<mode>_<dtype>; dtype fp8: dispatched so, else bf16.
#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace {
namespace target = farwarp::FARWARP_TARGET;
using farwarp::Bf16;
using farwarp::moe::Args;
using farwarp::moe::kThreads;
using Fp16 = farwarp::Half;
using Packets = target::moe::PacketWire<target::moe::AsTheyAre>;
using Fp8Packets = target::moe::PacketWire<target::moe::AsFp8>;
using Bulk = target::moe::BulkWire<target::moe::AsTheyAre>;
using Fp8Bulk = target::moe::BulkWire<target::moe::AsFp8>;
using target::moe::Part;
using target::moe::RankScale;
using target::moe::TableExpert;
using Words = target::moe::WordWire;
}  // namespace

FARWARP_KERNEL(moe_a2a_fused_packet_bf16_rank_scale, Args, kThreads) {
  target::moe::fused<Bf16, RankScale, Packets>(args);
}
FARWARP_KERNEL(moe_a2a_fused_packet_bf16_table, Args, kThreads) {
  target::moe::fused<Bf16, TableExpert, Packets>(args);
}
FARWARP_KERNEL(moe_a2a_fused_packet_fp16_rank_scale, Args, kThreads) {
  target::moe::fused<Fp16, RankScale, Packets>(args);
}
FARWARP_KERNEL(moe_a2a_fused_packet_fp16_table, Args, kThreads) {
  target::moe::fused<Fp16, TableExpert, Packets>(args);
}
FARWARP_KERNEL(moe_a2a_fused_bulk_bf16_rank_scale, Args, kThreads) { target::moe::fused<Bf16, RankScale, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_bf16_table, Args, kThreads) { target::moe::fused<Bf16, TableExpert, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_fp16_rank_scale, Args, kThreads) { target::moe::fused<Fp16, RankScale, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_fp16_table, Args, kThreads) { target::moe::fused<Fp16, TableExpert, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_packet_fp8_rank_scale, Args, kThreads) {
  target::moe::fused<Bf16, RankScale, Fp8Packets>(args);
}
FARWARP_KERNEL(moe_a2a_fused_packet_fp8_table, Args, kThreads) {
  target::moe::fused<Bf16, TableExpert, Fp8Packets>(args);
}
FARWARP_KERNEL(moe_a2a_fused_bulk_fp8_rank_scale, Args, kThreads) {
  target::moe::fused<Bf16, RankScale, Fp8Bulk>(args);
}
FARWARP_KERNEL(moe_a2a_fused_bulk_fp8_table, Args, kThreads) { target::moe::fused<Bf16, TableExpert, Fp8Bulk>(args); }

FARWARP_KERNEL(moe_a2a_dispatch_packet, Args, kThreads) { target::moe::dispatch<Packets, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_packet, Args, kThreads) { target::moe::dispatch<Packets, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_packet, Args, kThreads) { target::moe::dispatch<Packets, Part::receive>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_bulk, Args, kThreads) { target::moe::dispatch<Bulk, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_bulk_in_order, Args, kThreads) {
  target::moe::dispatch<Bulk, Part::both, target::moe::Sending::in_order>(args);
}
FARWARP_KERNEL(moe_a2a_dispatch_send_bulk, Args, kThreads) { target::moe::dispatch<Bulk, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_bulk, Args, kThreads) { target::moe::dispatch<Bulk, Part::receive>(args); }

FARWARP_KERNEL(moe_a2a_dispatch_packet_fp8, Args, kThreads) { target::moe::dispatch<Fp8Packets, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_packet_fp8, Args, kThreads) {
  target::moe::dispatch<Fp8Packets, Part::send>(args);
}
FARWARP_KERNEL(moe_a2a_dispatch_recv_packet_fp8, Args, kThreads) {
  target::moe::dispatch<Fp8Packets, Part::receive>(args);
}
FARWARP_KERNEL(moe_a2a_dispatch_bulk_fp8, Args, kThreads) { target::moe::dispatch<Fp8Bulk, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_bulk_fp8_in_order, Args, kThreads) {
  target::moe::dispatch<Fp8Bulk, Part::both, target::moe::Sending::in_order>(args);
}
FARWARP_KERNEL(moe_a2a_dispatch_send_bulk_fp8, Args, kThreads) { target::moe::dispatch<Fp8Bulk, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_bulk_fp8, Args, kThreads) { target::moe::dispatch<Fp8Bulk, Part::receive>(args); }

FARWARP_KERNEL(moe_a2a_combine_packet_bf16, Args, kThreads) { target::moe::combine<Bf16, Packets, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_packet_bf16, Args, kThreads) {
  target::moe::combine<Bf16, Packets, Part::send>(args);
}
FARWARP_KERNEL(moe_a2a_combine_recv_packet_bf16, Args, kThreads) {
  target::moe::combine<Bf16, Packets, Part::receive>(args);
}
FARWARP_KERNEL(moe_a2a_combine_packet_fp16, Args, kThreads) { target::moe::combine<Fp16, Packets, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_packet_fp16, Args, kThreads) {
  target::moe::combine<Fp16, Packets, Part::send>(args);
}
FARWARP_KERNEL(moe_a2a_combine_recv_packet_fp16, Args, kThreads) {
  target::moe::combine<Fp16, Packets, Part::receive>(args);
}
FARWARP_KERNEL(moe_a2a_combine_bulk_bf16, Args, kThreads) { target::moe::combine<Bf16, Bulk, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_bulk_bf16, Args, kThreads) { target::moe::combine<Bf16, Bulk, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_bulk_bf16, Args, kThreads) {
  target::moe::combine<Bf16, Bulk, Part::receive>(args);
}
FARWARP_KERNEL(moe_a2a_combine_bulk_fp16, Args, kThreads) { target::moe::combine<Fp16, Bulk, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_bulk_fp16, Args, kThreads) { target::moe::combine<Fp16, Bulk, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_bulk_fp16, Args, kThreads) {
  target::moe::combine<Fp16, Bulk, Part::receive>(args);
}

FARWARP_KERNEL(moe_a2a_fused_words_bf16_rank_scale, Args, kThreads) {
  target::moe::fused<Bf16, RankScale, Words>(args);
}
FARWARP_KERNEL(moe_a2a_fused_words_bf16_table, Args, kThreads) { target::moe::fused<Bf16, TableExpert, Words>(args); }
FARWARP_KERNEL(moe_a2a_fused_words_fp16_rank_scale, Args, kThreads) {
  target::moe::fused<Fp16, RankScale, Words>(args);
}
FARWARP_KERNEL(moe_a2a_fused_words_fp16_table, Args, kThreads) { target::moe::fused<Fp16, TableExpert, Words>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_words, Args, kThreads) { target::moe::dispatch<Words, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_words, Args, kThreads) { target::moe::dispatch<Words, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_words, Args, kThreads) { target::moe::dispatch<Words, Part::receive>(args); }
FARWARP_KERNEL(moe_a2a_combine_words_bf16, Args, kThreads) { target::moe::combine<Bf16, Words, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_words_bf16, Args, kThreads) { target::moe::combine<Bf16, Words, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_words_bf16, Args, kThreads) {
  target::moe::combine<Bf16, Words, Part::receive>(args);
}
FARWARP_KERNEL(moe_a2a_combine_words_fp16, Args, kThreads) { target::moe::combine<Fp16, Words, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_words_fp16, Args, kThreads) { target::moe::combine<Fp16, Words, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_words_fp16, Args, kThreads) {
  target::moe::combine<Fp16, Words, Part::receive>(args);
}
