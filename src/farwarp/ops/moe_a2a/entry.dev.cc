// The kernels of the MoE all-to-all, compiled once per target. Names: moe_a2a_<form>_<mode>[_<dtype>[_<expert>]].
#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace {
namespace target = farwarp::FARWARP_TARGET;
using farwarp::Bf16;
using farwarp::moe::Args;
using farwarp::moe::kThreads;
using Fp16 = farwarp::Half;
using Packets = target::moe::PacketWire;
using Bulk = target::moe::BulkWire;
using target::moe::Part;
using target::moe::RankScale;
using target::moe::TableExpert;
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

FARWARP_KERNEL(moe_a2a_dispatch_packet, Args, kThreads) { target::moe::dispatch<Packets, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_packet, Args, kThreads) { target::moe::dispatch<Packets, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_packet, Args, kThreads) { target::moe::dispatch<Packets, Part::receive>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_bulk, Args, kThreads) { target::moe::dispatch<Bulk, Part::both>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_bulk, Args, kThreads) { target::moe::dispatch<Bulk, Part::send>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_bulk, Args, kThreads) { target::moe::dispatch<Bulk, Part::receive>(args); }

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
