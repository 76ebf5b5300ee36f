// Routes, a word for each entry of a token; in the split form also the index of each entry among its expert's entries,
// and their counts. Every worker computes the indices of its own tokens. It first counts the entries of earlier tokens,
// with all threads, since counts do not depend on the order. Then it numbers the entries of its own tokens in order.
// The same inputs give the same indices in every run and every mode. In the masked layout entries of one token for one
// expert have one index, and count as one.
#pragma once

#include <bit>

#include "farwarp/ops/moe_a2a/tokens.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

// ---- routes ---------------------------------------------------------------------------------------------------------

/// [thread] A route in one word, as it crosses the link.
FARWARP_DEVICE std::uint64_t pack_route(float weight, int local_expert, std::uint32_t index) {
  const auto upper = static_cast<std::uint32_t>(local_expert) << kRouteIndexBits | index;
  return static_cast<std::uint64_t>(upper) << 32 | std::bit_cast<std::uint32_t>(weight);
}
FARWARP_DEVICE Route unpack_route(std::uint64_t word) {
  const auto upper = static_cast<std::uint32_t>(word >> 32);
  return {std::bit_cast<float>(static_cast<std::uint32_t>(word)), static_cast<std::int32_t>(upper >> kRouteIndexBits),
          static_cast<std::int32_t>(upper & ((1u << kRouteIndexBits) - 1))};
}

/// [warp] Sends a token's routes to each of `ranks`, a word for each k-slot. On lane j: `owner` (-1: none) and `route`
/// of k-slot j.
FARWARP_DEVICE void send_routes(const Call& call, const Args& args, int token, std::uint32_t ranks, int owner,
                                std::uint64_t route) {
  const int j = lane_index(), peer = j < args.view.size ? j : args.view.rank;
  const auto address = reinterpret_cast<std::uint64_t>(regions_of(args, call).routes(peer, args.view.rank, token).raw);
  for_each_rank(args, ranks, [&](int rank) {
    const Peer<Packet> packets(reinterpret_cast<Packet*>(shuffle(address, rank)));
    const std::uint64_t word = owner == rank ? route : kNoRoute;
    if (j < args.k) store_packet(packets + j, word, call.epoch);
  });
}

// ---- the split form: indices of entries -----------------------------------------------------------------------------

/// The tokens [first, last) that this block routes.
struct OwnTokens {
  int first, last;
};

// 32 bits suffice within the plan's limits. A 64-bit division would be a long subroutine (MEASURED.md, "What each step
// was worth").
FARWARP_DEVICE OwnTokens own_tokens(const Args& args, int tokens) {
  const int blocks = args.roles.workers, block = worker_index(args);
  const int each = tokens / blocks, more = tokens - each * blocks;  // the first `more` blocks have one token more
  const int first = each * block + (block < more ? block : more);
  return {first, first + each + (block < more ? 1 : 0)};
}

/// [thread] Warps take DispatchArgs::lane_entries entries at a time, whole tokens in the masked layout. The one of
/// `entries`, from `first` on, that my lane has when all warps take theirs for the `i`-th time; -1 if there is none.
FARWARP_DEVICE std::int32_t entry_of(const Args& args, int entries, int first, int i) {
  const int entry = first + (i * warps_per_block() + warp_index()) * args.dispatch.lane_entries + lane_index();
  return table_entry(args, entry, entry < entries && lane_index() < args.dispatch.lane_entries);
}

/// Entries that the threads of a worker load before join_call(), in flight together with the call's cells. Unchecked,
/// as table_entry() gives them.
struct EntriesAhead {
  static constexpr int kEarlier = 4;
  /// Entry number i of the thread (entry_of()) of those of earlier tokens; -1 beyond them.
  std::int32_t earlier[kEarlier];
  std::int32_t own;    ///< entry lane_index() of the block's own; -1 beyond them
  TokenEntry of_warp;  ///< of the block's token warp_index()

  FARWARP_DEVICE EntriesAhead(const Args& args, const OwnTokens& tokens)
      : of_warp(args, tokens.first + warp_index(), tokens.first + warp_index() < tokens.last) {
    const int first = tokens.first * args.k, last = tokens.last * args.k;
    load_earlier(args, first, 0, earlier);
    own = own_entry(args, first, last);
  }

  /// [thread] The thread's entries of the first `entries`, from `first` on; -1 beyond them.
  FARWARP_DEVICE static void load_earlier(const Args& args, int entries, int first, std::int32_t (&experts)[kEarlier]) {
#pragma unroll
    for (int i = 0; i < kEarlier; ++i) experts[i] = entry_of(args, entries, first, i);
  }
  /// [thread] The lane's entry of those that a warp takes from `first` on; -1 from `last` on.
  FARWARP_DEVICE static std::int32_t own_entry(const Args& args, int first, int last) {
    const int entry = first + lane_index();
    return table_entry(args, entry, entry < last && lane_index() < args.dispatch.lane_entries);
  }
};

/// [warp] Lanes whose entries have the expert of mine, and count. An entry is on lane entry % lane_entries; `expert`
/// negative: none.
struct SameExpert {
  std::uint64_t counting;  ///< in the masked layout the first of each token alone
  int first;               ///< the lane of my token's entry that counts for mine

  FARWARP_DEVICE SameExpert(const Args& args, int expert)
      : counting(match_any(expert >= 0 ? static_cast<std::uint32_t>(expert) : 0xffffffffu)), first(lane_index()) {
    if (args.dispatch.masked_layout == 0) return;
    const int token = args.dispatch.by_k.quotient(lane_index());
    first = lowest_bit(counting >> token * args.k << token * args.k);
    counting &= ballot(first == lane_index());
  }
  FARWARP_DEVICE std::uint32_t count() const { return static_cast<std::uint32_t>(count_bits(counting)); }
  /// Whether my lane acts for all of them.
  FARWARP_DEVICE bool leads() const { return lane_index() == lowest_bit(counting); }
  /// The index of my entry among them.
  FARWARP_DEVICE std::uint32_t index() const {
    return static_cast<std::uint32_t>(count_bits(counting & ((std::uint64_t{1} << first) - 1)));
  }
};

/// [warp] Counts the expert of each lane. Lanes with equal experts share one atomic: atomics of a warp on one word are
/// serialised, and all tokens of a batch may choose the same expert.
FARWARP_DEVICE void count_expert(const Args& args, Shared<std::uint32_t> histogram, int expert) {
  const SameExpert same(args, expert);
  if (expert >= 0 && same.leads()) fetch_add(histogram + expert, same.count());
}

/// [block] Counts the entries of tokens [0, last) by expert. `experts`: the first of them, as load_earlier() gives
/// them.
FARWARP_DEVICE void count_entries(const Args& args, int last, std::int32_t (&experts)[EntriesAhead::kEarlier]) {
  const auto histogram = shared_at<std::uint32_t>(args.shared.histogram);
  for (int e = thread_index(); e < args.num_experts; e += num_threads()) store(histogram + e, 0u);
  block_sync();
  const int entries = last * args.k, together = warps_per_block() * args.dispatch.lane_entries;
#pragma unroll 1
  for (int first = 0; first < entries; first += EntriesAhead::kEarlier * together) {
    if (first != 0) EntriesAhead::load_earlier(args, entries, first, experts);
#pragma unroll
    for (int i = 0; i < EntriesAhead::kEarlier; ++i) {
      if (first + i * together >= entries) break;  // for all threads
      count_expert(args, histogram, expert_or_none(args, experts[i]));
    }
  }
}

/// [warp] Assigns indices in order to the entries of tokens [first, last), at most kBatch tokens, and advances the
/// counts. `entry`: own_entry().
FARWARP_DEVICE void assign_indices(const Args& args, int first, int last, std::int32_t entry) {
  const auto histogram = shared_at<std::uint32_t>(args.shared.histogram);
  const auto indices = shared_at<std::uint32_t>(args.shared.indices);
  const int entries = (last - first) * args.k;
#pragma unroll 1
  for (int base = 0; base < entries; base += args.dispatch.lane_entries) {
    if (base != 0) entry = EntriesAhead::own_entry(args, first * args.k + base, last * args.k);
    const int expert = expert_or_none(args, entry);
    const SameExpert same(args, expert);
    std::uint32_t before = 0;
    if (expert >= 0) {
      before = load(histogram + expert);
      store(indices + (base + lane_index()), before + same.index());
    }
    warp_sync();
    if (expert >= 0 && same.leads()) store(histogram + expert, before + same.count());
    warp_sync();
  }
}

/// [warp] Sends the routes of `token` with their indices. `in_batch`: the token's number in its batch. `entry`: of the
/// token.
FARWARP_DEVICE void send_indexed_routes(const Call& call, const Args& args, int token, int in_batch,
                                        const TokenEntry& entry) {
  const int j = lane_index(), expert = expert_or_none(args, entry.listed);
  const int owner = owner_or_none(args, expert);
  std::uint64_t route = 0;
  if (owner >= 0) {
    const std::uint32_t index = load(shared_at<std::uint32_t>(args.shared.indices) + (in_batch * args.k + j));
    route = pack_route(entry.weight, expert - first_expert(args, owner), index);
  }
  send_routes(call, args, token, ranks_of_lanes(args, owner), owner, route);
}

/// Packets of a header that carry counts; they follow the bitmaps.
FARWARP_DEVICE int packets_with_counts(const Args& args) { return (args.max_local_experts + 1) / 2; }

/// [block] Sends to every rank how many entries each of its experts has: counts[e] of expert e. One worker calls it.
template <class Counts>
FARWARP_DEVICE void send_counts(const Call& call, const Args& args, Counts counts) {
  const Regions regions = regions_of(args, call);
  const int packets = packets_with_counts(args), bitmaps = num_bitmaps(args.max_tokens);
#pragma unroll 1
  for (int i = thread_index(); i < packets * args.view.size; i += num_threads()) {
    const int rank = i / packets, packet = i - rank * packets;
    const int first = first_expert(args, rank) + 2 * packet, end = first_expert(args, rank + 1);
    const std::uint32_t lower = first < end ? load(counts + first) : 0;
    const std::uint32_t upper = first + 1 < end ? load(counts + (first + 1)) : 0;
    store_packet(regions.header(rank, args.view.rank) + (bitmaps + packet),
                 static_cast<std::uint64_t>(upper) << 32 | lower, call.epoch);
  }
}

/// [block] Computes and sends the routes of the block's tokens, batch by batch; the last worker also sends the counts.
/// Waits for no other block. Entries out of range count as skipped.
FARWARP_DEVICE void route_tokens(const Call& call, const Args& args, int tokens, EntriesAhead& ahead) {
  const OwnTokens own = own_tokens(args, tokens);
  const bool counts_all = worker_index(args) == args.roles.workers - 1;
  if (own.first == own.last && !counts_all) return;
  count_entries(args, own.first, ahead.earlier);
  for (int first = own.first;; first += kBatch) {
    const int last = first + kBatch < own.last ? first + kBatch : own.last;
    block_sync();  // the histogram is complete, and the indices are free
    if (warp_index() == 0) {
      const bool loaded = first == own.first;
      assign_indices(args, first, last,
                     loaded ? ahead.own : EntriesAhead::own_entry(args, first * args.k, last * args.k));
    }
    block_sync();
#pragma unroll 1
    for (int token = first + warp_index(); token < last; token += warps_per_block()) {
      const bool loaded = token == own.first + warp_index();
      send_indexed_routes(call, args, token, token - first, loaded ? ahead.of_warp : TokenEntry(args, token, true));
    }
    if (last == own.last) break;
  }
  if (counts_all) send_counts(call, args, shared_at<std::uint32_t>(args.shared.histogram));  // it covers all tokens
}

}  // namespace farwarp::FARWARP_TARGET::moe
