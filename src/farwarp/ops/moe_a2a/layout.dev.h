// Split form: where each expert's rows from each source begin in the output, from the counts of all sources.
#pragma once

#include "farwarp/ops/moe_a2a/routing.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

/// [block] Waits for the headers of all sources. Afterwards their bitmaps are in shared memory, and `bases` has the
/// number of rows (kRows: entries) of every (source, local expert). False on all threads if the call is over.
FARWARP_DEVICE bool await_headers(Call& call, const Args& args) {
  const auto bases = shared_at<std::int32_t>(args.shared.bases);
  const int bitmaps = num_bitmaps(args.max_tokens), ranks = args.view.size;
#pragma unroll 1
  for (int i = thread_index(); i < args.header_packets * ranks; i += num_threads()) {
    const int packet = args.by_ranks.quotient(i), after = i - packet * ranks, source = rank_after(args, 1 + after);
    std::uint64_t data = 0;
    if (!await_header(call, args, source, packet, data)) break;
    if (packet < bitmaps) {
      take_bitmap(call, args, source, i, data);
      continue;
    }
    const int expert = 2 * (packet - bitmaps);
    const auto count = bases + (source * args.max_local_experts + expert);
    store(count, static_cast<std::int32_t>(data));
    if (expert + 1 < args.max_local_experts) store(count + 1, static_cast<std::int32_t>(data >> 32));
  }
  call.live = !block_any(!call.live);
  return call.live;
}

/// [warp] Turns the counts in `bases` into first output rows, and calls `expert_rows(e, first, count)` for each local
/// expert that the warp takes: in the masked layout each warp some, else warp 0, which alone calls this, all. Returns
/// the end of the last expert's rows. `overflow`, in the masked layout: set on a lane whose expert has more rows than
/// room, to the number of rows. Not for kRows.
template <class ExpertRows>
FARWARP_DEVICE std::int32_t lay_out_experts(const Args& args, std::int32_t& overflow, const ExpertRows& expert_rows) {
  const auto bases = shared_at<std::int32_t>(args.shared.bases);
  const int local = first_expert(args, args.view.rank + 1) - first_expert(args, args.view.rank);
  const auto room = static_cast<std::int32_t>(args.dispatch.recv_rows / args.max_local_experts);
  const int warps = args.dispatch.masked_layout ? warps_per_block() : 1;
  std::int32_t end = 0;
#pragma unroll 1
  for (int base = warp_index() * Target::kWarpSize; base < local; base += warps * Target::kWarpSize) {
    const int expert = base + lane_index();
    std::int32_t count = 0;
#pragma unroll 1
    for (int s = 0; expert < local && s < args.view.size; ++s)
      count += load(bases + (s * args.max_local_experts + expert));
    std::int32_t first = 0, all = 0;
    if (args.dispatch.masked_layout == 0) {
      first = end + sum_below((count + args.expert_rows.row_alignment - 1) & -args.expert_rows.row_alignment, all);
    } else if (expert < local) {
      first = expert * room;
      if (count > room) overflow = count;
    }
    if (expert < local) {
      std::int32_t next = first;
#pragma unroll 1
      for (int s = 0; s < args.view.size; ++s) {
        const auto source_base = bases + (s * args.max_local_experts + expert);
        const std::int32_t rows = load(source_base);
        store(source_base, next);
        if (args.expert_rows.row_ranges != nullptr && is_first_worker(args))
          store(Global<std::int64_t>(args.expert_rows.row_ranges) + (expert * args.view.size + s),
                std::int64_t{next - first} << 32 | rows);
        next += rows;
      }
      expert_rows(expert, first, count);
    }
    end += all;
  }
  return args.dispatch.masked_layout ? local * room : end;
}

/// [block] Computes the first output row of every (source, local expert). Every worker writes `bases` in its shared
/// memory; the first worker also writes the caller's counts and offsets. False on all threads if the call is over, also
/// because the rows do not fit.
FARWARP_DEVICE bool lay_out_rows(Call& call, const Args& args) {
  const auto totals = shared_at<std::uint32_t>(args.shared.totals);
  const int local = first_expert(args, args.view.rank + 1) - first_expert(args, args.view.rank);
  const bool first_worker = is_first_worker(args);
  if (warp_index() == 0 || args.dispatch.masked_layout) {
    std::int32_t overflow = 0;
    const std::int32_t end = lay_out_experts(args, overflow, [&](int expert, std::int32_t first, std::int32_t count) {
      store(totals + expert, static_cast<std::uint32_t>(count));
      if (!first_worker) return;
      store(Global<std::int32_t>(args.dispatch.counts) + expert, count);
      store(Global<std::int32_t>(args.dispatch.row_offsets) + expert, first);
      if (args.expert_rows.count_sums == nullptr) return;
      const Global<std::int32_t> sum = Global<std::int32_t>(args.expert_rows.count_sums) + expert;
      store(sum, load(sum) + count);
    });
    if (first_worker && thread_index() == 0) store(Global<std::int32_t>(args.dispatch.row_offsets) + local, end);
    const bool too_long = end > args.dispatch.recv_rows;
    if (ballot(overflow != 0 || too_long) != 0) {
      if (first_worker && (overflow != 0 || (too_long && lane_index() == 0))) {
        const std::int64_t needed = too_long ? end : std::int64_t{overflow} * args.max_local_experts;
        give_up(call, StatusCode::kCapacity, kSiteCapacity, -1, static_cast<std::uint64_t>(args.dispatch.recv_rows),
                static_cast<std::uint64_t>(needed));
      }
      call.live = false;
    }
  }
  call.live = !block_any(!call.live);
  return call.live;
}

/// [block] Stores origins = -1 for the padding rows of the experts, which are divided among the workers.
FARWARP_DEVICE void mark_padding(const Args& args) {
  if (args.dispatch.origins == nullptr) return;
  const auto bases = shared_at<std::int32_t>(args.shared.bases);
  const auto totals = shared_at<std::uint32_t>(args.shared.totals);
  const int local = first_expert(args, args.view.rank + 1) - first_expert(args, args.view.rank);
  const auto room = static_cast<std::int32_t>(args.dispatch.recv_rows / args.max_local_experts);
  for (int expert = worker_index(args); expert < local; expert += args.roles.workers) {
    const std::int32_t first = load(bases + expert);  // source 0's rows are first
    const auto count = static_cast<std::int32_t>(load(totals + expert));
    const std::int32_t end = args.dispatch.masked_layout
                                 ? room
                                 : (count + args.expert_rows.row_alignment - 1) & -args.expert_rows.row_alignment;
    for (std::int32_t row = count + thread_index(); row < end; row += num_threads()) {
      store(Global<std::int64_t>(args.dispatch.origins) + (first + row), std::int64_t{-1});
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
