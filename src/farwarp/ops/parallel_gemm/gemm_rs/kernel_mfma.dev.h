// gemm-rs on CDNA: each block sends the sums of its tiles. After that each wave adds up chunks of its own.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/send_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::gemm_reduce::Args;

template <class T, tile::MfmaShape shape>
FARWARP_DEVICE void gemm_rs_mfma(const Args& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  if (block_index() == 0 && warp_index() == 0) announce_ready(call, args.offsets.ready_cells);
  gemm_reduce::multiply_and_send(call, args, tile::MfmaTile<T, shape>{block_shared()});
  constexpr int kWaves = shape.threads() / Target::kWarpSize;
  gemm_reduce::EvenChunks share(args, kWaves * block_index() + warp_index(), kWaves * num_blocks());
  gemm_reduce::reduce_into_y<T, shape.columns, 1>(args, share, [&](gemm_reduce::BandRange bands) {
    return gemm_reduce::await_bands<Failure::called>(call, args, bands);
  });
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
