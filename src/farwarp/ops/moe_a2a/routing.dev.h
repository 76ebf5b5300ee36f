// Which ranks a token goes to, and, in the split form, at which slot there, and which row of its expert it becomes. Every block
// finds this for its own tokens: it counts what earlier tokens take, all threads at once because counts do not depend on order,
// and then numbers its own in order. The same inputs give the same slots on every run and in every mode. In the fused form a
// slot is the token's number (presence.dev.h).
#pragma once

#include <bit>

#include "farwarp/ops/moe_a2a/table.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using farwarp::moe::kBatch;

/// The tokens [first, last) that this block routes. With segments, two blocks may have pieces of one token.
struct OwnTokens {
  int first_unit, last_unit;  // a unit is (token, segment)
  int first, last;
};

// Everything is counted in 32 bits (the plan sees to it): a division of 64 bits is a long subroutine. On 8 H200s doing
// without took 0.3 to 2 us off the smallest batches (2026-11).
FARWARP_DEVICE OwnTokens own_tokens(const Args& args, int tokens) {
  const int units = tokens * args.segments, blocks = num_blocks(), block = block_index();
  const int each = units / blocks, more = units - each * blocks;  // the first `more` blocks have one unit more
  OwnTokens own{each * block + (block < more ? block : more), 0, 0, 0};
  own.last_unit = own.first_unit + each + (block < more ? 1 : 0);
  own.first = own.first_unit / args.segments;
  own.last = (own.last_unit + args.segments - 1) / args.segments;
  return own;
}
/// The block in whose tokens `unit` is.
FARWARP_DEVICE int router_of(const Args& args, int tokens, int unit) {
  const int units = tokens * args.segments, blocks = num_blocks();
  const int each = units / blocks, more = units - each * blocks;
  const int in_larger = more * (each + 1);
  return unit < in_larger ? unit / (each + 1) : more + (unit - in_larger) / each;
}

/// [warp] On lane r: how many lanes have bit r set in `ranks`.
FARWARP_DEVICE std::uint32_t count_by_rank(const Args& args, std::uint32_t ranks) {
  std::uint32_t count = 0;
#pragma unroll 1
  for (int r = 0; r < args.view.size; ++r) {
    const std::uint64_t takers = ballot((ranks >> r & 1) != 0);
    if (lane_index() == r) count = static_cast<std::uint32_t>(count_bits(takers));
  }
  return count;
}

/// [block] Looks at tokens [begin, last): counts the rows of those before `first` at every rank, each warp those it looked at,
/// and keeps the masks of tokens [first, last), at most kBatch of them.
FARWARP_DEVICE void count_rows(Call& call, const Args& args, int begin, int first, int last) {
  std::uint32_t count = 0;
#pragma unroll 1
  for (int base = begin; base < last; base += num_threads()) {
    const int token = base + thread_index();
    const std::uint32_t ranks = token < last ? destinations_of(call, args, token) : 0;
    count += count_by_rank(args, token < first ? ranks : 0);
    if (token >= first && token < last) store(shared_at<std::uint32_t>(args.shared.masks) + (token - first), ranks);
  }
  if (lane_index() < args.view.size) {
    store(shared_at<std::uint32_t>(args.shared.warp_rows) + (warp_index() * args.view.size + lane_index()), count);
  }
}

/// [warp] On lane r: the rows at rank r that count_rows() found. A block_sync() lies between.
FARWARP_DEVICE std::uint32_t counted_rows(const Args& args) {
  std::uint32_t count = 0;
#pragma unroll 1
  for (int warp = 0; lane_index() < args.view.size && warp < warps_per_block(); ++warp) {
    count += load(shared_at<std::uint32_t>(args.shared.warp_rows) + (warp * args.view.size + lane_index()));
  }
  return count;
}

/// [warp] On lane r: the rows at rank r of the batch's first `tokens` tokens.
FARWARP_DEVICE std::uint32_t rows_in_batch(const Args& args, int tokens) {
  std::uint32_t count = 0;
#pragma unroll 1
  for (int base = 0; base < tokens; base += Target::kWarpSize) {
    const int i = base + lane_index();
    count += count_by_rank(args, i < tokens ? load(shared_at<std::uint32_t>(args.shared.masks) + i) : 0);
  }
  return count;
}

// ---- the split form: which row of its expert an entry becomes ---------------------------------------------------------

/// [warp] Adds one to counter[key] for every lane with `counted`: lanes with equal keys add together, because atomics of a
/// warp on one word run one after another (a batch whose tokens all choose one expert would wait for each).
FARWARP_DEVICE void count_key(Shared<std::uint32_t> counter, int key, bool counted) {
  const std::uint64_t same = match_any(counted ? static_cast<std::uint32_t>(key) : 0xffffffffu);
  if (counted && lane_index() == lowest_bit(same))
    fetch_add(counter + key, static_cast<std::uint32_t>(count_bits(same)));
}

/// [block] Counts the entries of tokens [0, last) by expert.
FARWARP_DEVICE void count_entries(Call& call, const Args& args, int last) {
  const auto histogram = shared_at<std::uint32_t>(args.shared.histogram);
  for (int e = thread_index(); e < args.num_experts; e += num_threads()) store(histogram + e, 0u);
  block_sync();
  constexpr int kTogether = 4;
  const int entries = last * args.k;
#pragma unroll 1
  for (int base = thread_index(); base - thread_index() < entries; base += kTogether * num_threads()) {
    std::int32_t experts[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int entry = base + i * num_threads();
      experts[i] = table_entry(args, entry, entry < entries);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int expert = checked_expert(call, args, experts[i]);
      count_key(histogram, expert, expert >= 0);
    }
  }
}

/// [warp] Gives the entries of tokens [first, last), at most kBatch of them, their indices, in order, and advances the counts.
FARWARP_DEVICE void assign_indices(Call& call, const Args& args, int first, int last) {
  const auto histogram = shared_at<std::uint32_t>(args.shared.histogram);
  const auto indices = shared_at<std::uint32_t>(args.shared.indices);
  const int entries = (last - first) * args.k;
#pragma unroll 1
  for (int base = 0; base < entries; base += Target::kWarpSize) {
    const int i = base + lane_index();
    const std::int32_t entry = table_entry(args, first * args.k + i, i < entries);
    const int expert = checked_expert(call, args, entry);
    const std::uint64_t same = match_any(expert >= 0 ? static_cast<std::uint32_t>(expert) : 0xffffffffu);
    std::uint32_t before = 0;
    if (expert >= 0) {
      before = load(histogram + expert);
      store(indices + i, before + static_cast<std::uint32_t>(count_bits(same & lanes_below())));
    }
    warp_sync();
    if (expert >= 0 && lane_index() == lowest_bit(same)) {
      store(histogram + expert, before + static_cast<std::uint32_t>(count_bits(same)));
    }
    warp_sync();
  }
}

// ---- what is sent besides rows -----------------------------------------------------------------------------------------

/// Packets of a header of the split form.
FARWARP_DEVICE int count_packets(const Args& args) {
  return farwarp::moe::kHeaderFixed + (args.max_local_experts + 1) / 2;
}
/// A header's first packet says in its upper half what its reader must agree on: also in which form the call is.
FARWARP_DEVICE std::uint64_t with_configuration(const Args& args, std::uint32_t lower) {
  return static_cast<std::uint64_t>(farwarp::moe::folded(args.configuration)) << 32 | lower;
}
FARWARP_DEVICE void check_configuration(Call& call, const Args& args, int source, std::uint64_t data) {
  const std::uint32_t expected = farwarp::moe::folded(args.configuration),
                      seen = static_cast<std::uint32_t>(data >> 32);
  if (seen != expected && call.live) [[unlikely]]
    give_up(call, StatusCode::kMismatch, farwarp::moe::kSiteConfiguration, source, expected, seen);
}

/// [thread] A route in one word, as it crosses the link.
FARWARP_DEVICE std::uint64_t pack_route(float weight, int local_expert, std::uint32_t index) {
  const auto place = static_cast<std::uint32_t>(local_expert) << farwarp::moe::kRouteIndexBits | index;
  return static_cast<std::uint64_t>(place) << 32 | std::bit_cast<std::uint32_t>(weight);
}
FARWARP_DEVICE Route unpack_route(std::uint64_t word, int k_slot) {
  const auto place = static_cast<std::uint32_t>(word >> 32);
  return {std::bit_cast<float>(static_cast<std::uint32_t>(word)),
          static_cast<std::int32_t>(place >> farwarp::moe::kRouteIndexBits),
          static_cast<std::int32_t>(place & ((1u << farwarp::moe::kRouteIndexBits) - 1)), k_slot};
}

/// [warp] A row's head to every rank of `ranks`: the token's number, then a word per k-slot. `slot`: on lane r, the row's place
/// at rank r.
FARWARP_DEVICE void send_head(Call& call, const Args& args, int token, int in_batch, std::uint32_t ranks,
                              std::uint32_t slot) {
  const Regions regions = regions_of(args, call);
#pragma unroll 1
  for (int base = 0; base <= args.k; base += Target::kWarpSize) {
    const int j = base + lane_index() - 1;
    const bool entry_here = j >= 0 && j < args.k;
    const int entry = token * args.k + j;
    const int expert = checked_expert(call, args, table_entry(args, entry, entry_here));
    const int owner = expert >= 0 ? rank_of(args, expert) : -1;
    std::uint64_t route = farwarp::moe::kNoRoute;
    if (owner >= 0) {
      const float weight = load(Global<const float>(args.weights) + entry);
      const std::uint32_t index = load(shared_at<std::uint32_t>(args.shared.indices) + (in_batch * args.k + j));
      route = pack_route(weight, expert - first_expert(args, owner), index);
    }
#pragma unroll 1
    for (int i = 1; i <= args.view.size; ++i) {
      const int rank = rank_behind(args, i);
      const auto place = static_cast<std::int32_t>(shuffle(slot, rank));
      if (!(ranks >> rank & 1) || j >= args.k) continue;
      const std::uint64_t word = j < 0           ? static_cast<std::uint64_t>(token)
                                 : owner == rank ? route
                                                 : farwarp::moe::kNoRoute;
      store_packet(regions.head(rank, args.view.rank, place) + (j + 1), word, call.epoch);
    }
  }
}

/// [warp] Sends every rank its header: the back-pressure signal of the epoch and the counts of what is sent. Called by the last
/// block once it has counted all tokens; `totals`: on lane r, the rows at rank r; the histogram holds the entries by expert.
FARWARP_DEVICE void send_headers(const Call& call, const Args& args, std::uint32_t totals) {
  const Regions regions = regions_of(args, call);
  const auto histogram = shared_at<std::uint32_t>(args.shared.histogram);
  const int packets = count_packets(args);
#pragma unroll 1
  for (int base = 0; base < packets * args.view.size; base += Target::kWarpSize) {
    const int i = base + lane_index();
    const int rank = i / packets;
    const int packet = i % packets;
    const std::uint32_t rows = shuffle(totals, rank < args.view.size ? rank : 0);
    if (rank >= args.view.size) continue;
    std::uint64_t data = args.configuration;
    if (packet == 0) {
      data = with_configuration(args, rows);
    } else if (packet >= farwarp::moe::kHeaderFixed) {
      const int local = 2 * (packet - farwarp::moe::kHeaderFixed);
      const int first = first_expert(args, rank), end = first_expert(args, rank + 1);
      const std::uint32_t lower = first + local < end ? load(histogram + (first + local)) : 0;
      const std::uint32_t upper = first + local + 1 < end ? load(histogram + (first + local + 1)) : 0;
      data = static_cast<std::uint64_t>(upper) << 32 | lower;
    }
    store_packet(regions.header(rank, args.view.rank) + packet, data, call.epoch);
  }
}

/// Tokens [first, last) that a block routes together; [first_head, last_head) are those whose first unit is the block's: it
/// alone speaks for them.
struct Batch {
  int first, last;
  int first_head, last_head;
};

/// [block] Where the batch's tokens go, for senders that did not route them.
template <class SlotOf>
FARWARP_DEVICE void keep_slots(const Call& call, const Args& args, const Batch& batch, const SlotOf& slot_of) {
  const Regions regions = regions_of(args, call);
#pragma unroll 1
  for (int token = batch.first_head + warp_index(); token < batch.last_head; token += warps_per_block()) {
    const std::uint32_t ranks = load(shared_at<std::uint32_t>(args.shared.masks) + (token - batch.first));
    const std::uint32_t slot = slot_of(token);
    const int rank = lane_index();
    if (rank < args.view.size) store(regions.slots(token) + rank, ranks >> rank & 1 ? slot : farwarp::moe::kNoSlot);
  }
}

/// [block] Routes the block's tokens batch by batch and sends their heads; the last block sends the headers as soon as it has
/// counted all tokens. What becomes of the rows: `rows(batch, slot_of)` for each batch, with the masks of its tokens in
/// shared memory and `slot_of(token)` on lane r its place at rank r. Waits for nothing.
template <class Rows>
FARWARP_DEVICE void route_tokens(Call& call, const Args& args, const OwnTokens& own, const Rows& rows) {
  const auto masks = shared_at<std::uint32_t>(args.shared.masks);
  const int segments = args.segments;
  count_entries(call, args, own.first);
  std::uint32_t before = 0;  // on lane r: rows at rank r of the tokens before the batch
  for (int first = own.first;; first += kBatch) {
    const int last = first + kBatch < own.last ? first + kBatch : own.last;
    count_rows(call, args, first == own.first ? 0 : first, first, last);
    call.live = !block_any(!call.live);
    if (warp_index() == 0) assign_indices(call, args, first, last);
    block_sync();
    if (first == own.first) before = counted_rows(args);
    const std::uint32_t after = before + rows_in_batch(args, last - first);
    // The last block has looked at every entry: if any was out of range, its header stays out, and no peer takes what it has
    // received for the whole.
    if (last == own.last && block_index() == num_blocks() - 1 && warp_index() == warps_per_block() - 1 && call.live) {
      send_headers(call, args, after);
    }
    const auto slot_of = [&](int token) { return before + rows_in_batch(args, token - first); };
    const Batch batch{first, last,
                      own.first_unit > first * segments ? (own.first_unit + segments - 1) / segments : first,
                      own.last_unit < last * segments ? (own.last_unit + segments - 1) / segments : last};
    // Heads go out from the last warps, data from the first: where a block has few units, side by side.
#pragma unroll 1
    for (int token = batch.first_head + warps_per_block() - 1 - warp_index(); token < batch.last_head;
         token += warps_per_block()) {
      send_head(call, args, token, token - first, load(masks + (token - first)), slot_of(token));
    }
    rows(batch, slot_of);
    if (last == own.last) return;
    before = after;
    block_sync();  // the masks are free for the next batch
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
