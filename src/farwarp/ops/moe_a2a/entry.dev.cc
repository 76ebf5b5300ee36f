// The kernels of the MoE all-to-all, compiled once per target. Names: moe_a2a_<form>_<mode>[_<dtype>[_<expert>]].
#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace {
namespace target = farwarp::FARWARP_TARGET;
using farwarp::Bf16;
using farwarp::Half;
using farwarp::moe::Args;
using farwarp::moe::kThreads;
using Packets = target::moe::PacketWire;
using Bulk = target::moe::BulkWire;
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
  target::moe::fused<Half, RankScale, Packets>(args);
}
FARWARP_KERNEL(moe_a2a_fused_packet_fp16_table, Args, kThreads) {
  target::moe::fused<Half, TableExpert, Packets>(args);
}
FARWARP_KERNEL(moe_a2a_fused_bulk_bf16_rank_scale, Args, kThreads) { target::moe::fused<Bf16, RankScale, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_bf16_table, Args, kThreads) { target::moe::fused<Bf16, TableExpert, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_fp16_rank_scale, Args, kThreads) { target::moe::fused<Half, RankScale, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_fused_bulk_fp16_table, Args, kThreads) { target::moe::fused<Half, TableExpert, Bulk>(args); }

FARWARP_KERNEL(moe_a2a_dispatch_send_packet, Args, kThreads) { target::moe::dispatch_send<Packets>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_send_bulk, Args, kThreads) { target::moe::dispatch_send<Bulk>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_packet, Args, kThreads) { target::moe::dispatch_recv<Packets>(args); }
FARWARP_KERNEL(moe_a2a_dispatch_recv_bulk, Args, kThreads) { target::moe::dispatch_recv<Bulk>(args); }

FARWARP_KERNEL(moe_a2a_combine_send_packet_bf16, Args, kThreads) { target::moe::combine_send<Bf16, Packets>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_packet_fp16, Args, kThreads) { target::moe::combine_send<Half, Packets>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_bulk_bf16, Args, kThreads) { target::moe::combine_send<Bf16, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_combine_send_bulk_fp16, Args, kThreads) { target::moe::combine_send<Half, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_packet_bf16, Args, kThreads) { target::moe::combine_recv<Bf16, Packets>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_packet_fp16, Args, kThreads) { target::moe::combine_recv<Half, Packets>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_bulk_bf16, Args, kThreads) { target::moe::combine_recv<Bf16, Bulk>(args); }
FARWARP_KERNEL(moe_a2a_combine_recv_bulk_fp16, Args, kThreads) { target::moe::combine_recv<Half, Bulk>(args); }
