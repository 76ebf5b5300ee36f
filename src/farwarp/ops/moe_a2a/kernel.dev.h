// The kernels of the MoE all-to-all, read top-down. In every warp, sends come before waits.
#pragma once

#include "farwarp/ops/moe_a2a/wire_bulk.dev.h"
#include "farwarp/ops/moe_a2a/wire_packet.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

// Stages of a call, in OperatorCells::stage. The fused form runs from kIdle to kIdle in one launch, dispatch and combine in
// one each or as halves.
inline constexpr std::uint32_t kIdle = 0, kSent = 1, kReceived = 2, kReturning = 3;

/// [block] Brings near what the block will send, before anything is known or waited for: without this the table, the
/// weights and the rows would come from HBM one after the other.
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
  const std::int64_t piece = 2 * (args.hidden / args.segments);  // near enough
  prefetch_range(args.x, own.first_unit * piece, own.last_unit * piece);
}

/// [block] Lays out and unpacks the rows that arrive.
template <class Wire>
FARWARP_DEVICE void receive_rows(Wire& wire) {
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
  for_each_row(wire, [&](const Row& row) {
    reduce_row<T>(wire, row);
    wire.finish_return(row);
  });
}

/// [block] Sums what the owners return for this block's tokens.
template <class T, class Wire>
FARWARP_DEVICE void receive_returns(Wire& wire, const OwnTokens& own) {
  const int segments = wire.args.segments;
  const int length = wire.args.hidden / kPer<typename Wire::Unit>;
#pragma unroll 1
  for (int unit = own.first_unit + warp_index(); unit < own.last_unit; unit += warps_per_block()) {
    const int token = unit / segments, segment = unit - token * segments;
    const std::uint32_t ranks = destinations_by_lanes(wire.call, wire.args, token);
    if (!wire.await_returns(token, segment, ranks)) return;
    sum_returns<T>(wire, token, ranks, segment_start(wire.args, length, segment),
                   segment_start(wire.args, length, segment + 1));
  }
  refresh_idle_returns(wire, own.tokens);
}

/// dispatch -> expert -> combine in one launch.
template <class T, class Expert, class Wire>
FARWARP_DEVICE void fused(const Args& args) {
  prefetch_own(args);
  Call call = begin_call(args.view, args.slot, kIdle);
  if (!call.live) return;
  Wire wire(call, args);
  const OwnTokens own = own_tokens(args, token_count(call, args));
  send_tokens<false>(wire, own);
  const Expert expert(args);
  for_each_row(wire, [&](const Row& row) {
    if (!wire.await_data(row)) return;
    apply_experts<T>(wire, row, expert);
    wire.finish_return(row);
  });
  receive_returns<T>(wire, own);
  if (block_index() == 0 && await_headers(call, args, false)) refresh_idle_rows(wire);
  end_call(call, kIdle);
}

/// Split form: half of the call, or both halves in one launch.
enum class Part : int { send = 1, receive = 2, both = 3 };

template <class Wire, Part part>
FARWARP_DEVICE void dispatch(const Args& args) {
  if constexpr (part != Part::receive) prefetch_own(args);
  Call call = begin_call(args.view, args.slot, part == Part::receive ? kSent : kIdle);
  if (!call.live) return;
  Wire wire(call, args);
  if constexpr (part != Part::receive) send_tokens<true>(wire, own_tokens(args, token_count(call, args)));
  if constexpr (part != Part::send) receive_rows(wire);
  end_call(call, part == Part::send ? kSent : kReceived);
}

template <class T, class Wire, Part part>
FARWARP_DEVICE void combine(const Args& args) {
  Call call = begin_call(args.view, args.slot, part == Part::receive ? kReturning : kReceived);
  if (!call.live) return;
  Wire wire(call, args);
  if constexpr (part != Part::receive) return_rows<T>(wire);
  if constexpr (part != Part::send) receive_returns<T>(wire, own_tokens(args, token_count(call, args)));
  end_call(call, part == Part::send ? kReturning : kIdle);
}

}  // namespace farwarp::FARWARP_TARGET::moe
