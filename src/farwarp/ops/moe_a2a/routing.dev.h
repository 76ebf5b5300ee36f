// Which ranks a token goes to, at which slot, and which row of its expert it becomes. Every block finds this for its own
// tokens: it counts what earlier tokens take (counts do not depend on order, so all threads count at once), then one warp
// assigns the block's own tokens in order. The same inputs give the same slots on every run and in every mode.
#pragma once

#include <bit>

#include "farwarp/ops/moe_a2a/regions.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using farwarp::moe::kBatch;
using farwarp::moe::kNoSlot;

/// The batch's tokens [first, last) that this block owns. With segments, two blocks may own pieces of one token.
struct OwnTokens {
  int tokens;                          // of this rank in this call
  std::int64_t first_unit, last_unit;  // a unit is (token, segment)
  int first, last;
};

/// [block] Reads and checks the token count.
FARWARP_DEVICE int token_count(Call& call, const Args& args) {
  const int tokens = args.tokens_on_device ? load(Global<const std::int32_t>(args.tokens_on_device)) : args.tokens;
  if (tokens >= 0 && tokens <= args.max_tokens) return tokens;
  if (block_index() == 0 && thread_index() == 0) {
    give_up(call, StatusCode::kBadInput, farwarp::moe::kSiteTokens, -1, args.max_tokens,
            static_cast<std::uint64_t>(tokens));
  }
  call.live = false;
  return 0;
}

FARWARP_DEVICE OwnTokens own_tokens(const Args& args, int tokens) {
  const std::int64_t units = static_cast<std::int64_t>(tokens) * args.segments;
  OwnTokens own{tokens, units * block_index() / num_blocks(), units * (block_index() + 1) / num_blocks(), 0, 0};
  own.first = static_cast<int>(own.first_unit / args.segments);
  own.last = static_cast<int>((own.last_unit + args.segments - 1) / args.segments);
  return own;
}

/// [thread] Expert of entry `entry` (token * k + k-slot), or -1 if it is masked. Anything else is the caller's error.
FARWARP_DEVICE int expert_of(Call& call, const Args& args, std::int64_t entry) {
  const std::int64_t expert =
      args.wide_indices ? load(Global<const std::int64_t>(static_cast<const std::int64_t*>(args.topk)) + entry)
                        : load(Global<const std::int32_t>(static_cast<const std::int32_t*>(args.topk)) + entry);
  if (expert >= -1 && expert < args.num_experts) return static_cast<int>(expert);
  if (call.live) {
    give_up(call, StatusCode::kBadInput, farwarp::moe::kSiteExpert, -1, args.num_experts,
            static_cast<std::uint64_t>(expert));
  }
  return -1;
}

FARWARP_DEVICE int rank_of(const Args& args, int expert) {
  return expert * args.view.size / args.num_experts;  // moe_rank_of: at most 4095 * 8, so 32 bits suffice
}
FARWARP_DEVICE int first_expert(const Args& args, int rank) {
  return moe_first_expert(rank, args.view.size, args.num_experts);
}

/// [thread] Bit r: the token has an expert on rank r.
FARWARP_DEVICE std::uint32_t destinations_of(Call& call, const Args& args, int token) {
  std::uint32_t ranks = 0;
  for (int j = 0; j < args.k; ++j) {
    const int expert = expert_of(call, args, static_cast<std::int64_t>(token) * args.k + j);
    if (expert >= 0) ranks |= 1u << rank_of(args, expert);
  }
  return ranks;
}

/// [block] Zeroes the running counts.
FARWARP_DEVICE void clear_counts(const Args& args) {
  const auto histogram = shared_at<std::uint32_t>(args.shared.histogram);
  const auto rank_rows = shared_at<std::uint32_t>(args.shared.rank_rows);
  for (int e = thread_index(); e < args.num_experts; e += num_threads()) store(histogram + e, 0u);
  for (int r = thread_index(); r < args.view.size; r += num_threads()) store(rank_rows + r, 0u);
  block_sync();
}

/// [warp] Adds one to counter[key] for every lane with `counted`: lanes with equal keys add together, because atomics of a
/// warp on one word run one after another (a batch whose tokens all choose one expert would wait for each).
FARWARP_DEVICE void count_key(Shared<std::uint32_t> counter, int key, bool counted) {
  const std::uint64_t same = match_any(counted ? static_cast<std::uint32_t>(key) : 0xffffffffu);
  if (counted && lane_index() == lowest_bit(same))
    fetch_add(counter + key, static_cast<std::uint32_t>(count_bits(same)));
}

/// [block] Counts what tokens [0, last) take at every rank and of every expert.
FARWARP_DEVICE void count_earlier(Call& call, const Args& args, int last) {
  const auto histogram = shared_at<std::uint32_t>(args.shared.histogram);
  const auto rank_rows = shared_at<std::uint32_t>(args.shared.rank_rows);
  for (int base = 0; base < last; base += num_threads()) {
    const int token = base + thread_index();
    const std::uint32_t ranks = token < last ? destinations_of(call, args, token) : 0;
    for (int r = 0; r < args.view.size; ++r) {
      const std::uint64_t takers = ballot(ranks >> r & 1);
      if (lane_index() == 0 && takers != 0) fetch_add(rank_rows + r, static_cast<std::uint32_t>(count_bits(takers)));
    }
  }
  const std::int64_t entries = static_cast<std::int64_t>(last) * args.k;
  for (std::int64_t base = 0; base < entries; base += num_threads()) {
    const std::int64_t entry = base + thread_index();
    const int expert = entry < entries ? expert_of(call, args, entry) : -1;
    count_key(histogram, expert, expert >= 0);
  }
  block_sync();
}

/// [warp] Gives the tokens [first, last), at most kBatch of them, their slots and indices, in order, and advances the counts.
FARWARP_DEVICE void assign_in_order(Call& call, const Args& args, int first, int last) {
  const auto histogram = shared_at<std::uint32_t>(args.shared.histogram);
  const auto rank_rows = shared_at<std::uint32_t>(args.shared.rank_rows);
  const auto slots = shared_at<std::uint32_t>(args.shared.slots);
  const auto indices = shared_at<std::uint32_t>(args.shared.indices);
  for (int base = first; base < last; base += Target::kWarpSize) {
    const int token = base + lane_index();
    const std::uint32_t ranks = token < last ? destinations_of(call, args, token) : 0;
    for (int r = 0; r < args.view.size; ++r) {
      const bool taken = ranks >> r & 1;
      const std::uint64_t takers = ballot(taken);
      const std::uint32_t before = load(rank_rows + r);
      const auto slot = before + static_cast<std::uint32_t>(count_bits(takers & lanes_below()));
      if (token < last) store(slots + ((token - first) * args.view.size + r), taken ? slot : kNoSlot);
      warp_sync();
      if (lane_index() == 0) store(rank_rows + r, before + static_cast<std::uint32_t>(count_bits(takers)));
      warp_sync();
    }
  }
  const int entries = (last - first) * args.k;
  for (int base = 0; base < entries; base += Target::kWarpSize) {
    const int entry = base + lane_index();
    const int expert = entry < entries ? expert_of(call, args, static_cast<std::int64_t>(first) * args.k + entry) : -1;
    const std::uint64_t same = match_any(expert >= 0 ? static_cast<std::uint32_t>(expert) : 0xffffffffu);
    std::uint32_t before = 0;
    if (expert >= 0) {
      before = load(histogram + expert);
      store(indices + entry, before + static_cast<std::uint32_t>(count_bits(same & lanes_below())));
    }
    warp_sync();
    if (expert >= 0 && lane_index() == lowest_bit(same)) {
      store(histogram + expert, before + static_cast<std::uint32_t>(count_bits(same)));
    }
    warp_sync();
  }
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

/// [warp] The routes of `token` (number `in_batch` of the batch) that end on `rank`, in k-slot order: `emit(i, word)` on one
/// lane each. Returns the mask of their k-slots.
template <class Emit>
FARWARP_DEVICE std::uint32_t routes_to(Call& call, const Args& args, int token, int in_batch, int rank,
                                       const Emit& emit) {
  const int j = lane_index();
  const std::int64_t entry = static_cast<std::int64_t>(token) * args.k + j;
  const int expert = j < args.k ? expert_of(call, args, entry) : -1;
  const bool here = expert >= 0 && rank_of(args, expert) == rank;
  const std::uint64_t k_slots = ballot(here);
  if (here) {
    const float weight = load(Global<const float>(args.weights) + entry);
    const std::uint32_t index = load(shared_at<std::uint32_t>(args.shared.indices) + (in_batch * args.k + j));
    emit(count_bits(k_slots & lanes_below()), pack_route(weight, expert - first_expert(args, rank), index));
  }
  return static_cast<std::uint32_t>(k_slots);
}

/// A row's first word: its token's number at the source, and which k-slots of it end here.
constexpr std::uint64_t row_word(int token, std::uint32_t k_slots) {
  return static_cast<std::uint64_t>(k_slots) << 32 | static_cast<std::uint32_t>(token);
}

/// [block] Sends every rank its header: the back-pressure signal of the epoch and the counts of what follows. Called by the
/// last block after it has assigned its tokens, when the running counts are totals.
FARWARP_DEVICE void send_headers(const Call& call, const Args& args, int tokens) {
  const Regions regions = regions_of(args, call);
  const auto histogram = shared_at<std::uint32_t>(args.shared.histogram);
  const auto rank_rows = shared_at<std::uint32_t>(args.shared.rank_rows);
  const int words = args.header_packets * args.view.size;
  for (int i = thread_index(); i < words; i += num_threads()) {
    const int rank = i / args.header_packets;
    const int packet = i % args.header_packets;
    std::uint64_t data = args.configuration;
    if (packet == 0) {
      data = static_cast<std::uint64_t>(static_cast<std::uint32_t>(tokens)) << 32 | load(rank_rows + rank);
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

/// [block] Routes the block's tokens batch by batch, calls `send(first, last)` for each batch of tokens, and has the last
/// block send the headers. Nothing here waits.
template <class SendBatch>
FARWARP_DEVICE void route_and_send(Call& call, const Args& args, const OwnTokens& own, const SendBatch& send) {
  clear_counts(args);
  count_earlier(call, args, own.first);
  const auto rank_rows = shared_at<std::uint32_t>(args.shared.rank_rows);
  const auto first_slots = shared_at<std::uint32_t>(args.shared.first_slots);
  for (int r = thread_index(); r < args.view.size; r += num_threads()) store(first_slots + r, load(rank_rows + r));
  block_sync();
  for (int first = own.first; first < own.last; first += kBatch) {
    const int last = first + kBatch < own.last ? first + kBatch : own.last;
    if (warp_index() == 0) assign_in_order(call, args, first, last);
    block_sync();
    send(first, last);
    block_sync();
  }
  // The last block has looked at every entry: if any was out of range, its header stays out, and no peer takes what it has
  // received for the whole.
  if (block_index() == num_blocks() - 1 && !block_any(!call.live)) send_headers(call, args, own.tokens);
}

}  // namespace farwarp::FARWARP_TARGET::moe
