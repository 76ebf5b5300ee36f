// The kernels of the MoE all-to-all, read top-down. In every warp, sends come before waits for other ranks.
#pragma once

#include "farwarp/ops/moe_a2a/sending.dev.h"
#include "farwarp/ops/moe_a2a/wire_bulk.dev.h"
#include "farwarp/ops/moe_a2a/wire_words.dev.h"

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

/// [block] The same in the fused form, all warps for those that send; for wires that do not load them by themselves.
FARWARP_DEVICE void prefetch_pieces(const Args& args) {
  if (args.tokens_on_device != nullptr) return;
  constexpr int kLine = 128;
  const int units = args.tokens * args.segments, entry_bytes = args.wide_indices != 0 ? 8 : 4;
  const std::int64_t piece = 2 * args.by_segments.quotient(args.hidden);  // near enough
  const auto bytes_at = [](const void* start, std::int64_t at) {
    return Global<const std::byte>(static_cast<const std::byte*>(start)) + at;
  };
#pragma unroll 1
  for (int unit = warp_in_grid(); unit < units; unit += warps_of_grid()) {
    const int token = args.by_segments.quotient(unit), entry = token * args.k;
    if (lane_index() == 0) prefetch(bytes_at(args.topk, entry * entry_bytes));
    if (lane_index() == 1) prefetch(bytes_at(args.weights, entry * 4));
    const std::int64_t first = std::int64_t{2} * token * args.hidden + (unit - token * args.segments) * piece;
#pragma unroll 1
    for (std::int64_t at = lane_index() * kLine; at < piece; at += Target::kWarpSize * kLine)
      prefetch(bytes_at(args.x, first + at));
  }
}

/// [block] Applies the experts to the rows that arrive, and sends the sums back.
template <class T, class Expert, class Wire>
FARWARP_DEVICE void work_on_rows(Wire& wire) {
  const Expert expert(wire.args);
  for_each_row_present(wire, [&](const Row& row) { return apply_experts<T>(wire, row, expert); });
}

/// [block] Lays out and unpacks the rows that arrive.
template <class Wire>
FARWARP_DEVICE void receive_rows(Wire& wire) {
  if (!is_worker(wire.args)) return;
  if (!await_headers(wire.call, wire.args)) return;
  const auto rows = shared_at<std::uint32_t>(wire.args.shared.rows);
  refresh_idle_rows(wire, [&](int source, int slot) { return static_cast<std::uint32_t>(slot) < load(rows + source); });
  if (!lay_out_rows(wire.call, wire.args)) return;
  mark_padding(wire.args);
  for_each_row<Wire::kAlign>(wire.call, wire.args, [&](const Row& row) {
    if (wire.await_data(row)) unpack_row(wire, row);
  });
}

/// [block] Sums the experts' outputs of the rows that came, and back.
template <class T>
FARWARP_DEVICE void return_rows(Call& call, const Args& args) {
  const Regions regions = regions_of(args, call);
  for_each_row<1>(call, args, [&](const Row& row) { reduce_row<T>(args, regions, row); });
}

/// dispatch -> expert -> combine in one launch.
template <class T, class Expert, class Wire>
FARWARP_DEVICE void fused(const Args& args) {
  if constexpr (!Wire::kLoadsAhead) prefetch_pieces(args);
  const int given = given_tokens(args);
  const Parcels parcels(args, possible_tokens(args, given));
  const auto first = make_parcel<Wire>(args, parcels, parcels.first());
  Call call = begin_call(args.view, args.slot, kIdle);
  if (!call.live) return;
  Wire wire(call, args);
  const int tokens = checked_tokens(call, args, given);
  announce_rows(call, args, tokens);
  send_rows(wire, parcels, first);
  if (await_bitmaps(call, args)) {
    work_on_rows<T, Expert>(wire);
    receive_returns<T>(call, args, tokens);
    refresh_idle_rows(wire, [&](int source, int slot) { return has_row(args, source, slot); });
  }
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
  if constexpr (part != Part::receive) send_tokens<sending>(wire, token_count(call, args));
  if constexpr (part != Part::send) receive_rows(wire);
  end_call(call, part == Part::send ? kSent : kReceived);
}

template <class T, Part part>
FARWARP_DEVICE void combine(const Args& args) {
  Call call = begin_call(args.view, args.slot, part == Part::receive ? kReturning : kReceived);
  if (!call.live) return;
  if constexpr (part != Part::receive) return_rows<T>(call, args);
  if constexpr (part != Part::send) receive_returns<T>(call, args, token_count(call, args));
  end_call(call, part == Part::send ? kReturning : kIdle);
}

}  // namespace farwarp::FARWARP_TARGET::moe
