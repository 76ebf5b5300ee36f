// Kernels of the MoE all-to-all: fused, dispatch, combine (also with weights of its own), and the end of a call without
// combine. kRows' are in dispatch_rows.dev.h, combine_rows.dev.h and row_weights.dev.h. Read from the end upwards. In
// every warp, what it dispatches (headers, routes, rows) is sent before its first wait for another rank. Sums follow
// waits for rows; ORDER.md, "Liveness", says why no cycle of waits arises.
#pragma once

#include "farwarp/ops/moe_a2a/layout.dev.h"
#include "farwarp/ops/moe_a2a/rows.dev.h"
#include "farwarp/ops/moe_a2a/sending.dev.h"
#include "farwarp/ops/moe_a2a/tokens.dev.h"
#include "farwarp/ops/moe_a2a/weights.dev.h"
#include "farwarp/ops/moe_a2a/wire_bulk.dev.h"
#include "farwarp/ops/moe_a2a/wire_words.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

// ---- tags of inbox slots that a call leaves idle --------------------------------------------------------------------

/// [block] Retags some of the rows' inbox slots that this call leaves idle. Reads the bitmaps: call it after the
/// block_any() that follows await_bitmaps(), if call.live was true there.
template <class Wire>
FARWARP_DEVICE void retag_idle_rows(Wire& wire) {
  const Args& args = wire.args;
  if (!is_first_worker(args)) return;
  for_each_slot_to_retag(wire.call, args, [&](int token, int source) {
    if (has_row(args, source, token)) return;
    retag(wire.call, wire.regions.routes(args.view.rank, source, token), args.k);
    wire.retag_row(source, token);
  });
}

// ---- steps of the kernels -------------------------------------------------------------------------------------------

/// [block] Prefetches what the grid will send. All warps take part, also those that do not send. For wires without
/// kLoadsAhead.
FARWARP_DEVICE void prefetch_segments(const Args& args) {
  if (args.tokens.on_device != nullptr) return;
  constexpr int kLine = 128;
  const int items = args.tokens.count * args.segments, entry_bytes = args.tokens.wide_indices != 0 ? 8 : 4;
  const std::int64_t segment = 2 * args.by_segments.quotient(args.hidden);  // bytes, without the wire's alignment
  const auto bytes_at = [](const void* start, std::int64_t at) {
    return Global<const std::byte>(static_cast<const std::byte*>(start)) + at;
  };
#pragma unroll 1
  for (int item = warp_in_grid(); item < items; item += warps_of_grid()) {
    const int token = args.by_segments.quotient(item), entry = token * args.k;
    if (lane_index() == 0) prefetch(bytes_at(args.tokens.topk, entry * entry_bytes));
    if (lane_index() == 1) prefetch(bytes_at(args.tokens.weights, entry * 4));
    const std::int64_t first = std::int64_t{2} * token * args.hidden + (item - token * args.segments) * segment;
#pragma unroll 1
    for (std::int64_t at = lane_index() * kLine; at < segment; at += Target::kWarpSize * kLine)
      prefetch(bytes_at(args.send.x, first + at));
  }
}

/// [block] Applies the experts to the rows that arrive, and sends the sums back.
template <class T, class Expert, class Wire>
FARWARP_DEVICE void work_on_rows(Wire& wire) {
  const Expert expert(wire.args);
  for_each_arriving_segment<Wire::kAlign>(wire.args, [&](const ReceivedSegment& segment) {
    const TraceStart start = trace_start();
    const bool live = apply_experts<T>(wire, segment, expert);
    trace_warp(start, TraceWork::kReceive, segment.token);
    return live;
  });
}

/// [block] Lays out and unpacks the rows that arrive.
template <class Wire>
FARWARP_DEVICE void receive_rows(Wire& wire) {
  const Args& args = wire.args;
  if (!is_worker(args)) return;
  block_sync();  // routing no longer needs the shared memory
  if (!await_headers(wire.call, args)) return;
  retag_idle_rows(wire);
  if (!lay_out_rows(wire.call, args)) return;
  mark_padding(args);
  const int rows = for_each_arriving_segment<Wire::kAlign>(args, [&](const ReceivedSegment& segment) {
    const TraceStart start = trace_start();
    const bool live = unpack_segment<false>(wire, segment, 0);
    trace_warp(start, TraceWork::kReceive, segment.token);
    return live;
  });
  if (is_first_worker(args) && thread_index() == 0)
    store(wire.regions.kept_record_count(), static_cast<std::uint32_t>(rows));
}

/// [block] Claims and leaves the call, since the block has read its cells. Most of its work on the call comes after: a
/// thread of the last warp does this, and no other warp waits for it. So the operator's phase, `next_phase`, says that
/// a later kernel of the stream may begin, not that this one has ended. Not claim_call(), which inlines give_up(): only
/// kernels whose warps change their register counts need that.
FARWARP_DEVICE void finish_with_cells(Call& call, std::uint32_t next_phase) {
  if (thread_index() != num_threads() - 1) return;
  if (block_index() == 0 && !mark_busy(call)) give_up(call, StatusCode::kMisuse, kSiteBegin, -1, 0, 0);
  leave_call(call, next_phase);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

/// dispatch -> expert -> combine in one launch.
template <class T, class Expert, class Wire>
FARWARP_DEVICE void fused(const Args& args) {
  if constexpr (!Wire::kLoadsAhead) prefetch_segments(args);
  const int given = given_tokens(args);
  const Parcels<RouteSenders::row_warps> parcels(args, tokens_or_none(args, given));
  RowsToSend<Wire, RouteSenders::row_warps> rows(args, parcels);
  Call call = join_call(args.view, args.operator_slot, kIdle);
  if (!call.live) return;
  Wire wire(call, args);
  const int tokens = checked_tokens(call, args, given);
  send_bitmaps(call, args, tokens);
  finish_with_cells(call, kIdle);
  rows.send(wire);
  await_bitmaps(call, args);
  call.live = !block_any(!call.live);
  if (call.live) {
    work_on_rows<T, Expert>(wire);
    receive_returns<T>(call, args, tokens);
    retag_idle_rows(wire);
  }
}

// Split form: a launch does one half of dispatch or of combine, or both (Args::halves). One kernel serves all, so that
// profiles show one name, and code is stored once.
FARWARP_DEVICE bool sends(const Args& args) { return (args.halves & kSendHalf) != 0; }
FARWARP_DEVICE bool receives(const Args& args) { return (args.halves & kReceiveHalf) != 0; }

template <class Wire>
FARWARP_DEVICE void dispatch(const Args& args) {
  const int given = given_tokens(args);
  const int given_or_none = sends(args) ? tokens_or_none(args, given) : 0;
  const Parcels<RouteSenders::workers> parcels(args, given_or_none);
  if constexpr (!Wire::kLoadsAhead) {
    if (sends(args) && args.roles.sending_blocks == num_blocks()) prefetch_segments(args);
  }
  EntriesAhead entries(args, is_worker(args) ? own_tokens(args, given_or_none) : OwnTokens{0, 0});
  RowsToSend<Wire, RouteSenders::workers> rows(args, parcels);
  Call call = join_call(args.view, args.operator_slot, sends(args) ? kIdle : kSent);
  if (!call.live) return;
  Wire wire(call, args);
  if (sends(args)) {
    const int tokens = checked_tokens(call, args, given);
    send_bitmaps(call, args, tokens);
    if (is_worker(args)) route_tokens(call, args, tokens, entries);
  }
  finish_with_cells(call, receives(args) ? kReceived : kSent);
  if (sends(args)) rows.send(wire);
  if (receives(args)) receive_rows(wire);
}

template <class T>
FARWARP_DEVICE void combine(const Args& args) {
  const KeptAhead kept(args, sends(args));
  Call call = join_call(args.view, args.operator_slot, sends(args) ? kReceived : kReturning);
  if (!call.live) return;
  finish_with_cells(call, receives(args) ? kIdle : kReturning);
  if (sends(args)) return_rows<T, KeptWeights>(call, args, kept);
  if (receives(args)) receive_returns<T>(call, args, token_count(call, args));
}

/// combine() with weights that are given only now.
template <class T>
FARWARP_DEVICE void combine_with_weights(const Args& args) {
  const int given = given_tokens(args), given_or_none = sends(args) ? tokens_or_none(args, given) : 0;
  const TokenEntry entry(args, warp_in_grid(), warp_in_grid() < given_or_none);
  const KeptAhead kept(args, sends(args));
  Call call = join_call(args.view, args.operator_slot, sends(args) ? kReceived : kReturning);
  if (!call.live) return;
  const int tokens = checked_tokens(call, args, given);
  if (sends(args)) send_weights(call, args, tokens, entry);
  finish_with_cells(call, receives(args) ? kIdle : kReturning);
  if (sends(args)) return_rows<T, SentWeights>(call, args, kept);
  if (receives(args)) receive_returns<T>(call, args, tokens);
  if (sends(args) && args.dispatch_was_empty == 0) retag_idle_weights(call, args);
}

/// Ends a call of which combine does not come: the next one begins with a dispatch.
FARWARP_DEVICE void end_without_combine(const Args& args) {
  const Call call = begin_call(args.view, args.operator_slot, kReceived);
  if (call.live) end_call(call, kIdle);
}

}  // namespace farwarp::FARWARP_TARGET::moe
