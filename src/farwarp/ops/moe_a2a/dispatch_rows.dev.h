// Dispatch with MoeLayout::kRows: a row lies once at each rank that it is sent to, by source rank and token, with its top-k entries there. No entry
// needs an index: the bitmaps say where a row lies. So routes are sent with the rows, as in the fused form, and only the counts need counting.
#pragma once

#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

// ---- places ---------------------------------------------------------------------------------------------------------------

/// For each bitmap, numbered as bitmaps_of() is: the rows of its source in earlier bitmaps.
FARWARP_DEVICE Shared<std::int32_t> rows_before(const Args& args) { return shared_at<std::int32_t>(args.row_places); }
/// [ranks + 1]: the first row of each source, and the end.
FARWARP_DEVICE Shared<std::int32_t> first_rows(const Args& args) { return rows_before(args) + bitmap_count(args); }
/// `source`'s number among the ranks after mine.
FARWARP_DEVICE int turn_of(const Args& args, int source) {
  const int after = source - args.view.rank - 1;
  return after < 0 ? after + args.view.size : after;
}

/// [block] Fills rows_before() and first_rows() from the bitmaps in shared memory. Returns the number of rows.
FARWARP_DEVICE int place_rows(const Args& args) {
  const int ranks = args.view.size, words = num_bitmaps(args.max_tokens);
#pragma unroll 1
  for (int source = warp_index(); source < ranks; source += warps_per_block()) {
    std::int32_t rows = 0;
#pragma unroll 1
    for (int base = 0; base < words; base += Target::kWarpSize) {
      const int word = base + lane_index(), number = word * ranks + turn_of(args, source);
      std::int32_t all = 0;
      const std::int32_t before = sum_below(word < words ? count_bits(load(bitmaps_of(args) + number)) : 0, all);
      if (word < words) store(rows_before(args) + number, rows + before);
      rows += all;
    }
    if (lane_index() == 0) store(first_rows(args) + source, rows);
  }
  block_sync();
  if (warp_index() == 0) {
    const int source = lane_index();
    std::int32_t all = 0;
    const std::int32_t first = sum_below(source < ranks ? load(first_rows(args) + source) : 0, all);
    if (source < ranks) store(first_rows(args) + source, first);
    if (source == ranks) store(first_rows(args) + ranks, all);
  }
  block_sync();
  return load(first_rows(args) + ranks);
}

/// [thread] Where a row that `source` sends lies.
FARWARP_DEVICE std::int32_t place_of(const Args& args, int source, int token) {
  const int number = token / kBitmapTokens * args.view.size + turn_of(args, source);
  const std::uint32_t earlier = load(bitmaps_of(args) + number) & ((1u << token % kBitmapTokens) - 1);
  return load(first_rows(args) + source) + load(rows_before(args) + number) + count_bits(earlier);
}

// ---- counts ---------------------------------------------------------------------------------------------------------------

/// [block] Counts the entries of all tokens by expert, and sends the counts; one worker does it.
FARWARP_DEVICE void count_and_send(Call& call, const Args& args, int tokens) {
  if (worker_index(args) != args.roles.workers - 1) return;
  count_entries(call, args, tokens);
  call.live = !block_any(!call.live);
  if (call.live) send_counts(call, args);
}

/// [block] Stores the caller's counts of entries and first rows. After await_headers() and place_rows().
FARWARP_DEVICE void store_counts(const Args& args) {
  const auto counts = shared_at<std::int32_t>(args.shared.bases);
  const int local = first_expert(args, args.view.rank + 1) - first_expert(args, args.view.rank);
  for (int expert = thread_index(); expert < local; expert += num_threads()) {
    std::int32_t count = 0;
    for (int s = 0; s < args.view.size; ++s) count += load(counts + (s * args.max_local_experts + expert));
    store(Global<std::int32_t>(args.counts) + expert, count);
  }
  for (int source = thread_index(); source <= args.view.size; source += num_threads())
    store(Global<std::int32_t>(args.row_offsets) + source, load(first_rows(args) + source));
}

// ---- rows -----------------------------------------------------------------------------------------------------------------

/// [thread] Stores an entry of a row's top-k tables. `expert` -1: of no expert here.
FARWARP_DEVICE void store_entry(const Args& args, std::int64_t entry, std::int32_t expert, float weight) {
  if (args.wide_indices != 0) {
    store(Global<std::int64_t>(static_cast<std::int64_t*>(args.recv_topk)) + entry, std::int64_t{expert});
  } else {
    store(Global<std::int32_t>(static_cast<std::int32_t*>(args.recv_topk)) + entry, expert);
  }
  store(Global<float>(args.recv_weights) + entry, weight);
}

/// [block] Rows of the output beyond the last that arrives have no experts.
FARWARP_DEVICE void mark_unused(const Args& args, std::int32_t rows) {
  const std::int64_t end = args.recv_rows * args.k, stride = std::int64_t{args.roles.workers} * num_threads();
#pragma unroll 1
  for (std::int64_t entry = std::int64_t{rows} * args.k + worker_index(args) * num_threads() + thread_index();
       entry < end; entry += stride)
    store_entry(args, entry, -1, 0);
}

/// [warp] Waits for the segment and stores it. With the row's first segment: its entries, and what combine needs, a copy of weight 1. False on
/// all lanes if the call is over.
template <class Wire>
FARWARP_DEVICE bool deliver_segment(Wire& wire, const ReceivedSegment& segment) {
  constexpr int kAhead = Wire::kUnpackAhead;
  const Args& args = wire.args;
  const std::int32_t place = place_of(args, segment.source, segment.token);
  std::uint64_t route_word = kNoRoute;  // on lane j: of k-slot j
#pragma unroll 1
  for (int base = segment.first; base < segment.last; base += kAhead * kStride) {
    const int u = base + lane_index();
    typename Wire::Dispatched x[kAhead];
    const bool arrived = wire.read_segment(segment, u, x, base == segment.first, route_word);
    if (ballot(!arrived) != 0) {
      wire.call.live = false;
      return false;
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (u + a * kStride < segment.last) Wire::Encoding::deliver(args, place, u + a * kStride, x[a]);
    }
  }
  if (segment.number != 0) return true;
  const Route route = unpack_route(route_word);
  const bool here = route_word != kNoRoute;
  if (lane_index() < args.k)
    store_entry(args, std::int64_t{place} * args.k + lane_index(), here ? route.expert : -1, here ? route.weight : 0);
  keep_row(wire.regions, segment, lane_index() == 0 ? kept_word(place, 1.0f) : kNoRoute);
  return true;
}

/// [block] Waits for the headers, and stores what the caller wants to know of them. Returns the number of rows; -1 if the call is over.
template <class Wire>
FARWARP_DEVICE int await_counts(Wire& wire) {
  block_sync();  // counting no longer needs the shared memory
  if (!await_headers(wire.call, wire.args)) return -1;
  const int rows = place_rows(wire.args);
  if (is_first_worker(wire.args) && wire.args.counts != nullptr) store_counts(wire.args);
  return rows;
}

template <class Wire>
FARWARP_DEVICE void receive_whole_rows(Wire& wire) {
  const Args& args = wire.args;
  if (!is_worker(args)) return;
  const int rows = await_counts(wire);
  if (rows < 0) return;
  retag_idle_rows(wire);
  if (rows > args.recv_rows) {
    if (is_first_worker(args) && thread_index() == 0) {
      give_up(wire.call, StatusCode::kCapacity, kSiteCapacity, -1, static_cast<std::uint64_t>(args.recv_rows),
              static_cast<std::uint64_t>(rows));
    }
    wire.call.live = false;
    return;
  }
  mark_unused(args, rows);
  const int received = for_each_announced_segment<Wire::kAlign>(
      args, [&](const ReceivedSegment& segment) { return deliver_segment(wire, segment); });
  if (is_first_worker(args) && thread_index() == 0)
    store(wire.regions.kept_count(), static_cast<std::uint32_t>(received));
}

/// dispatch() of kernel.dev.h for MoeLayout::kRows. The sending half has the counts, if the caller wants them: one block waits for the headers.
template <class Wire, Part part>
FARWARP_DEVICE void dispatch_rows(const Args& args) {
  constexpr bool kSends = part != Part::receive;
  const int given = given_tokens(args);
  const Parcels<RouteSenders::row_warps> parcels(args, kSends ? tokens_or_none(args, given) : 0);
  if constexpr (kSends && !Wire::kLoadsAhead) {
    if (args.roles.sending_blocks == num_blocks()) prefetch_segments(args);
  }
  const auto first = make_parcel<Wire>(args, parcels, parcels.first(args));
  Call call = begin_call(args.view, args.slot, kSends ? kIdle : kSent);
  if (!call.live) return;
  Wire wire(call, args);
  if constexpr (kSends) {
    const int tokens = checked_tokens(call, args, given);
    announce_rows(call, args, tokens);
    if (call.live) count_and_send(call, args, tokens);
    send_rows(wire, parcels, first);
  }
  if constexpr (part == Part::send) {
    if (is_first_worker(args) && args.counts != nullptr) await_counts(wire);
  } else {
    receive_whole_rows(wire);
  }
  end_call(call, part == Part::send ? kSent : kReceived);
}

}  // namespace farwarp::FARWARP_TARGET::moe
