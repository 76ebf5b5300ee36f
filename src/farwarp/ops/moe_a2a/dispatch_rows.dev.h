// Dispatch with MoeLayout::kRows: the kernels, and how rows are received where they do not move in pieces.
#pragma once

#include "farwarp/ops/moe_a2a/dispatch_pieces.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

template <class Wire>
FARWARP_DEVICE void receive_whole_rows(Wire& wire) {
  const Args& args = wire.args;
  if (!is_worker(args)) return;
  const int rows = receive_headers(wire.call, args);
  if (rows < 0) return;
  retag_idle_rows(wire);
  if (!check_capacity(wire.call, args, rows)) return;
  mark_unused(args, rows);
  const int received = for_each_arriving_segment<Wire::kAlign>(args, [&](const ReceivedSegment& segment) {
    const TraceStart start = trace_start();
    const bool live = unpack_segment<true>(wire, segment, find_output_row(args, segment.source, segment.token));
    trace_warp(start, TraceWork::kReceive, segment.token);
    return live;
  });
  if (is_first_worker(args) && thread_index() == 0)
    store(wire.regions.kept_record_count(), static_cast<std::uint32_t>(received));
}

// ---- kernels --------------------------------------------------------------------------------------------------------

/// dispatch() of kernel.dev.h for MoeLayout::kRows. The sending half has the counts, if the caller wants them: one
/// block waits for the headers.
template <class Wire>
FARWARP_DEVICE void dispatch_whole_rows(const Args& args) {
  const int given = given_tokens(args);
  const Parcels<RouteSenders::row_warps> parcels(args, sends(args) ? tokens_or_none(args, given) : 0);
  if constexpr (!Wire::kLoadsAhead) {
    if (sends(args) && args.roles.sending_blocks == num_blocks()) prefetch_segments(args);
  }
  RowsToSend<Wire, RouteSenders::row_warps> rows(args, parcels);
  Call call = begin_call(args.view, args.operator_slot, sends(args) ? kIdle : kSent);
  if (!call.live) return;
  Wire wire(call, args);
  if (sends(args)) {
    const int tokens = checked_tokens(call, args, given);
    send_bitmaps(call, args, tokens);
    send_entry_counts(call, args, tokens);
    rows.send(wire);
  }
  if (receives(args)) {
    receive_whole_rows(wire);
  } else if (is_first_worker(args) && args.dispatch.counts != nullptr) {
    receive_headers(call, args);
  }
  end_call(call, receives(args) ? kReceived : kSent);
}

template <class Wire>
FARWARP_DEVICE void dispatch_rows(const Args& args) {
  if constexpr (Target::kHasBulkCopy && Wire::kBulk) {
    dispatch_in_pieces<Target>(args);
  } else {
    dispatch_whole_rows<Wire>(args);
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
