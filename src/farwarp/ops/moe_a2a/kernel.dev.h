// The kernels of the MoE all-to-all, read top-down. In every warp, sends come before waits for other ranks.
#pragma once

#include "farwarp/ops/moe_a2a/sending.dev.h"
#include "farwarp/ops/moe_a2a/wire_bulk.dev.h"
#include "farwarp/ops/moe_a2a/wire_packet.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

// Stages of a call, in OperatorCells::stage. The fused form runs from kIdle to kIdle in one launch, dispatch and combine in
// one each or as halves.
inline constexpr std::uint32_t kIdle = 0, kSent = 1, kReceived = 2, kReturning = 3;

/// [block] Brings near what the block will send, before anything is known or waited for: without this the table, the
/// weights and the rows would come from HBM one after the other.
template <Sending sending>
FARWARP_DEVICE void prefetch_own(const Args& args) {
  if (args.tokens_on_device != nullptr) return;  // how far x reaches is not known here
  constexpr int kLine = 128;
  const OwnTokens own = own_tokens(args, args.tokens);
  const auto prefetch_range = [](const void* start, std::int64_t first, std::int64_t last) {
    const Global<const std::byte> bytes(static_cast<const std::byte*>(start));
    for (std::int64_t at = first + thread_index() * kLine; at < last; at += num_threads() * kLine) prefetch(bytes + at);
  };
  const int first_entry = own.first * args.k, last_entry = own.last * args.k;
  const int entry_bytes = args.wide_indices != 0 ? 8 : 4;
  prefetch_range(args.topk, first_entry * entry_bytes, last_entry * entry_bytes);
  prefetch_range(args.weights, first_entry * 4, last_entry * 4);
  if constexpr (sending == Sending::in_order) return;            // others send the rows
  const std::int64_t piece = 2 * (args.hidden / args.segments);  // near enough
  prefetch_range(args.x, own.first_unit * piece, own.last_unit * piece);
}

/// [block] Applies the experts to the rows that arrive, and sends the sums back.
template <class T, class Expert, class Wire>
FARWARP_DEVICE void work_on_rows(Wire& wire) {
  if (!is_worker(wire.args)) return;
  const Expert expert(wire.args);
  for_each_row(wire, [&](const Row& row) {
    if (!wire.await_data(row)) return;
    apply_experts<T>(wire, row, expert);
    wire.finish_return(row);
  });
}

/// [block] Lays out and unpacks the rows that arrive.
template <class Wire>
FARWARP_DEVICE void receive_rows(Wire& wire) {
  if (!is_worker(wire.args)) return;
  if (!await_headers(wire.call, wire.args, true)) return;
  refresh_idle_rows(wire);
  if (!lay_out_rows(wire.call, wire.args)) return;
  mark_padding(wire.args);
  for_each_row(wire, [&](const Row& row) {
    if (wire.await_data(row)) unpack_row(wire, row);
  });
}

/// [block] Sums the experts' outputs of the rows that came, and back.
template <class T, class Wire>
FARWARP_DEVICE void return_rows(Wire& wire) {
  if (!is_worker(wire.args)) return;
  for_each_row(wire, [&](const Row& row) {
    reduce_row<T>(wire, row);
    wire.finish_return(row);
  });
}

/// [block] Sums what the owners return, in the order in which tokens were sent.
template <class T, class Wire>
FARWARP_DEVICE void receive_returns(Wire& wire, int tokens) {
  if (!is_summer(wire.args)) return;
  const int segments = wire.args.segments;
  const int summer = block_index() - wire.args.roles.first_summer;
  const int summers = num_blocks() - wire.args.roles.first_summer;
  const int length = wire.args.hidden / kPer<typename Wire::Unit>;
#pragma unroll 1
  for (int unit = summer * warps_per_block() + warp_index(); unit < tokens * segments;
       unit += summers * warps_per_block()) {
    const int token = unit / segments, segment = unit - token * segments;
    const std::uint32_t ranks = destinations_by_lanes(wire.call, wire.args, token);
    if (!wire.await_returns(token, segment, ranks)) return;
    sum_returns<T>(wire, token, ranks, segment_start<Wire::kAlign>(wire.args, length, segment),
                   segment_start<Wire::kAlign>(wire.args, length, segment + 1));
  }
  refresh_idle_returns(wire, tokens);
}

/// dispatch -> expert -> combine in one launch.
template <class T, class Expert, class Wire>
FARWARP_DEVICE void fused(const Args& args) {
  prefetch_own<Sending::by_router>(args);
  Call call = begin_call(args.view, args.slot, kIdle);
  if (!call.live) return;
  Wire wire(call, args);
  const int tokens = token_count(call, args);
  send_tokens<Sending::by_router, false>(wire, tokens);
  work_on_rows<T, Expert>(wire);
  receive_returns<T>(wire, tokens);
  if (is_first_worker(args) && await_headers(call, args, false)) refresh_idle_rows(wire);
  end_call(call, kIdle);
}

/// Split form: half of the call, or both halves in one launch.
enum class Part : int { send = 1, receive = 2, both = 3 };

template <class Wire, Part part, Sending sending = Sending::by_router>
FARWARP_DEVICE void dispatch(const Args& args) {
  if constexpr (part != Part::receive) prefetch_own<sending>(args);
  Call call = begin_call(args.view, args.slot, part == Part::receive ? kSent : kIdle);
  if (!call.live) return;
  Wire wire(call, args);
  if constexpr (part != Part::receive) send_tokens<sending, true>(wire, token_count(call, args));
  if constexpr (part != Part::send) receive_rows(wire);
  end_call(call, part == Part::send ? kSent : kReceived);
}

template <class T, class Wire, Part part>
FARWARP_DEVICE void combine(const Args& args) {
  Call call = begin_call(args.view, args.slot, part == Part::receive ? kReturning : kReceived);
  if (!call.live) return;
  Wire wire(call, args);
  if constexpr (part != Part::receive) return_rows<T>(wire);
  if constexpr (part != Part::send) receive_returns<T>(wire, token_count(call, args));
  end_call(call, part == Part::send ? kReturning : kIdle);
}

}  // namespace farwarp::FARWARP_TARGET::moe
