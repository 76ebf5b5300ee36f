// Dispatch with MoeLayout::kRows: a row lies once at each rank that it is sent to, by source rank and token, with its
// top-k entries there. No entry needs an index: the bitmaps say where a row lies. So routes are sent with the rows, as
// in the fused form (in pieces by the workers), and only the counts need counting. This file: output rows, counts and
// entries. dispatch_pieces.dev.h and dispatch_rows.dev.h: how rows move.
#pragma once

#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

// ---- output rows ----------------------------------------------------------------------------------------------------

/// For each bitmap, numbered as bitmaps_of() is: the rows of its source in earlier bitmaps.
FARWARP_DEVICE Shared<std::int32_t> rows_before(const Args& args) {
  return shared_at<std::int32_t>(args.rows.bitmap_sums);
}
/// [ranks + 1]: the first output row of each source, and the end.
FARWARP_DEVICE Shared<std::int32_t> first_rows(const Args& args) { return rows_before(args) + bitmap_count(args); }

/// [block] Prefix sums: fills rows_before() and first_rows() from the bitmaps in shared memory. Returns the number of
/// rows.
FARWARP_DEVICE int scan_bitmaps(const Args& args) {
  const int ranks = args.view.size, packets = num_bitmaps(args.max_tokens);
#pragma unroll 1
  for (int source = warp_index(); source < ranks; source += warps_per_block()) {
    std::int32_t rows = 0;
#pragma unroll 1
    for (int base = 0; base < packets; base += Target::kWarpSize) {
      const int packet = base + lane_index(), bitmap = bitmap_of(args, source, packet * kBitmapTokens);
      std::int32_t all = 0;
      const std::int32_t before = sum_below(packet < packets ? count_bits(load(bitmaps_of(args) + bitmap)) : 0, all);
      if (packet < packets) store(rows_before(args) + bitmap, rows + before);
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

/// [thread] The output row of the row that `source` sends for `token`. After scan_bitmaps().
FARWARP_DEVICE std::int32_t find_output_row(const Args& args, int source, int token) {
  const int bitmap = bitmap_of(args, source, token);
  const std::uint32_t earlier = load(bitmaps_of(args) + bitmap) & ((1u << token % kBitmapTokens) - 1);
  return load(first_rows(args) + source) + load(rows_before(args) + bitmap) + count_bits(earlier);
}

// ---- counts ---------------------------------------------------------------------------------------------------------

/// [block] Counts the entries of all tokens by expert, unless the caller has, and sends the counts; one worker does it.
FARWARP_DEVICE void send_entry_counts(const Call& call, const Args& args, int tokens) {
  if (worker_index(args) != args.roles.workers - 1) return;
  if (args.rows.expert_counts != nullptr) {
    send_counts(call, args,
                Global<const std::uint32_t>(reinterpret_cast<const std::uint32_t*>(args.rows.expert_counts)));
    return;
  }
  std::int32_t first[EntriesAhead::kEarlier];
  EntriesAhead::load_earlier(args, tokens * args.k, 0, first);
  count_entries(args, tokens, first);
  block_sync();  // the histogram is complete
  send_counts(call, args, shared_at<std::uint32_t>(args.shared.histogram));
}

/// [block] Stores the caller's counts of entries and first rows. After await_headers() and scan_bitmaps().
FARWARP_DEVICE void store_counts(const Args& args) {
  const auto counts = shared_at<std::int32_t>(args.shared.bases);
  const int local = first_expert(args, args.view.rank + 1) - first_expert(args, args.view.rank);
  for (int expert = thread_index(); expert < local; expert += num_threads()) {
    std::int32_t count = 0;
    for (int s = 0; s < args.view.size; ++s) count += load(counts + (s * args.max_local_experts + expert));
    store(Global<std::int32_t>(args.dispatch.counts) + expert, count);
  }
  for (int source = thread_index(); source <= args.view.size; source += num_threads())
    store(Global<std::int32_t>(args.dispatch.row_offsets) + source, load(first_rows(args) + source));
}

// ---- entries --------------------------------------------------------------------------------------------------------

/// [block] Rows of the output beyond the last that arrives have no experts.
FARWARP_DEVICE void mark_unused(const Args& args, std::int32_t rows) {
  const std::int64_t end = args.dispatch.recv_rows * args.k, stride = std::int64_t{args.roles.workers} * num_threads();
#pragma unroll 1
  for (std::int64_t entry = std::int64_t{rows} * args.k + worker_index(args) * num_threads() + thread_index();
       entry < end; entry += stride)
    store_entry(args, entry, -1, 0);
}

/// [block] Waits for the headers, and stores what the caller wants to know of them. Returns the number of rows; -1 if
/// the call is over.
FARWARP_DEVICE int receive_headers(Call& call, const Args& args) {
  block_sync();  // counting, or find_output_row() of other warps, no longer reads the shared memory
  if (!await_headers(call, args)) return -1;
  const int rows = scan_bitmaps(args);
  if (is_first_worker(args) && args.dispatch.counts != nullptr) store_counts(args);
  return rows;
}

/// [block] Whether `rows` rows fit into the caller's tensors; if not, gives up.
FARWARP_DEVICE bool check_capacity(Call& call, const Args& args, int rows) {
  if (rows <= args.dispatch.recv_rows) return true;
  if (is_first_worker(args) && thread_index() == 0) {
    give_up(call, StatusCode::kCapacity, kSiteCapacity, -1, static_cast<std::uint64_t>(args.dispatch.recv_rows),
            static_cast<std::uint64_t>(rows));
  }
  call.live = false;
  return false;
}

}  // namespace farwarp::FARWARP_TARGET::moe
