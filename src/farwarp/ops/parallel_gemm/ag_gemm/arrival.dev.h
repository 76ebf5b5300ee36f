// The waits for peers' x that arrives in pieces with flags.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using namespace farwarp::ag_gemm;

using ArrivalCell = SystemCell<std::uint64_t>;

/// [warp] Waits until rows [row, end) of all ranks' x have arrived in piece `depth` of K. Acquires what
/// signal_arrival() has released, for loads and for copies. Returns the first piece of K, at most `end_depth`, that may
/// not have arrived yet: those before it need no wait. If the wait gives up, callers go on all the same: the results of
/// an aborted call are not used.
FARWARP_DEVICE int await_rows(Call& call, const Args& args, int row, int end, int depth, int end_depth) {
  const auto piece_of = [&](int at) {
    return at / args.shard_rows * args.pieces.row_count + at % args.shard_rows / args.pieces.rows;
  };
  const int first = piece_of(row),
            count = piece_of(end - 1) + 1 - first;  // `count` is at most 16 with 32 lanes, 18 with 64
  const int fit = Target::kWarpSize / count;
  const int depths = fit < end_depth - depth ? fit : end_depth - depth;
  const int mine = first + lane_index() % count;
  const Global<ArrivalCell> cell = own_address<ArrivalCell>(args.view, args.arrived_of(call.epoch)) +
                                   (mine * args.pieces.depth_count + depth + lane_index() / count);
  const Wait wait{.site = kSiteArrival, .peer = mine / args.pieces.row_count};
  const int arrived = wait_leading<Failure::inlined>(call, cell, depths * count, count, call.epoch, wait);
  if constexpr (Target::kHasBulkCopy) proxy_fence();
  warp_sync();
  return depth + arrived / count;
}

/// Rows of all ranks' x.
struct RowRange {
  int first, end;
};

/// [warp] Waits until these rows of step `step` have arrived as boxes. Returns the first later step of the work whose
/// rows may not have arrived. It is at least step + 1, even if the call is over.
FARWARP_DEVICE int await_boxes(Call& call, const Args& args, RowRange rows, const farwarp::tile::Work& work, int step,
                               int step_depth) {
  const int piece_steps = args.pieces.depth / step_depth;
  const int last = work.steps.first + work.steps.count - 1;
  const int depth = step / piece_steps;
  const int arrived_end = await_rows(call, args, rows.first, rows.end, depth, last / piece_steps + 1);
  return arrived_end > depth ? arrived_end * piece_steps : step + 1;
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
