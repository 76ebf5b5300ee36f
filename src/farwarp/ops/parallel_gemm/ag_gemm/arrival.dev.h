// What has come of the peers' x: the wait for it.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using namespace farwarp::ag_gemm;

using ArrivalCell = SystemCell<std::uint64_t>;

/// [warp] Waits until rows [row, end) of all ranks' x have come in piece number `depth` of K, for copies and for accesses, and returns
/// the next piece, below `end_depth`, that may not have come: what lies before need not be waited for. A wait that gives up is passed
/// over: what comes out of an aborted call counts for nothing.
FARWARP_DEVICE int await_rows(Call& call, const Args& args, int row, int end, int depth, int end_depth) {
  const auto piece_of = [&](int at) {
    return at / args.shard_rows * args.pieces.row_count + at % args.shard_rows / args.pieces.rows;
  };
  const int first = piece_of(row), count = piece_of(end - 1) + 1 - first;  // at most 16 of 32 lanes, or 18 of 64
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

/// [warp] Waits until these rows of a step have come as boxes, and returns the next step of the work whose rows may not have; at least the
/// next one, also when the call is over.
FARWARP_DEVICE int await_boxes(Call& call, const Args& args, RowRange rows, const farwarp::tile::Work& work, int step,
                               int step_depth) {
  const int piece_steps = args.pieces.depth / step_depth;
  const int last = work.steps.first + work.steps.count - 1;
  const int depth = step / piece_steps;
  const int arrived_end = await_rows(call, args, rows.first, rows.end, depth, last / piece_steps + 1);
  return arrived_end > depth ? arrived_end * piece_steps : step + 1;
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
