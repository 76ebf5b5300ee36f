// What the caller's tensors say: how many tokens there are, and to which ranks they go.
#pragma once

#include "farwarp/ops/moe_a2a/regions.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

/// As the caller gives it, unchecked.
FARWARP_DEVICE int given_tokens(const Args& args) {
  return args.tokens_on_device ? load(Global<const std::int32_t>(args.tokens_on_device)) : args.tokens;
}
/// As many as can be there: none if the caller's number is none.
FARWARP_DEVICE int possible_tokens(const Args& args, int tokens) {
  return tokens >= 0 && tokens <= args.max_tokens ? tokens : 0;
}
/// [block] Gives up if the number is none.
FARWARP_DEVICE int checked_tokens(Call& call, const Args& args, int tokens) {
  if (tokens >= 0 && tokens <= args.max_tokens) return tokens;
  if (block_index() == 0 && thread_index() == 0) {
    give_up(call, StatusCode::kBadInput, farwarp::moe::kSiteTokens, -1, args.max_tokens,
            static_cast<std::uint64_t>(tokens));
  }
  call.live = false;
  return 0;
}
FARWARP_DEVICE int token_count(Call& call, const Args& args) { return checked_tokens(call, args, given_tokens(args)); }

/// [thread] What the top-k table says at entry `entry` (token * k + k-slot) and behind it, at most `left` entries: an expert, or -1
/// if it is masked, or if there is no such entry. Anything else is the caller's error; of 64 bits it becomes the nearest of 32, so
/// that all else is done in these. The loads are all under way before one is looked at.
template <int count>
FARWARP_DEVICE void read_table(const Args& args, int entry, int left, std::int32_t (&experts)[count]) {
  const auto words = Global<const std::int32_t>(static_cast<const std::int32_t*>(args.topk));
  const bool wide = args.wide_indices != 0;
  const int stride = wide ? 2 : 1;
#pragma unroll
  for (int i = 0; i < count; ++i) experts[i] = i < left ? load(words + (entry + i) * stride) : -1;
  if (!wide) return;
  std::int32_t upper[count];
#pragma unroll
  for (int i = 0; i < count; ++i) upper[i] = i < left ? load(words + ((entry + i) * stride + 1)) : -1;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (upper[i] != experts[i] >> 31) experts[i] = upper[i] >> 31 ^ 0x7fffffff;
  }
}
/// [thread] One entry, if `there`.
FARWARP_DEVICE std::int32_t table_entry(const Args& args, int entry, bool there) {
  std::int32_t expert[1];
  read_table(args, entry, there ? 1 : 0, expert);
  return expert[0];
}

/// [thread] The entry as an expert, or -1; gives up if it is out of range.
FARWARP_DEVICE int checked_expert(Call& call, const Args& args, std::int32_t expert) {
  if (expert >= -1 && expert < args.num_experts) [[likely]]
    return expert;
  if (call.live) {
    give_up(call, StatusCode::kBadInput, farwarp::moe::kSiteExpert, -1, args.num_experts - 1,
            static_cast<std::uint64_t>(std::int64_t{expert}));
  }
  return -1;
}
/// [thread] The same where another warp, or an earlier kernel, looks at all entries and gives up.
FARWARP_DEVICE int expert_or_none(const Args& args, std::int32_t expert) {
  return expert < args.num_experts ? expert : -1;
}

/// Fault injection: this rank drops the token's row.
FARWARP_DEVICE bool dropped(const Args& args, int token) {
  return static_cast<std::uint32_t>(token) + 1 == args.drop_put;
}

/// moe_rank_of()
FARWARP_DEVICE int rank_of(const Args& args, int expert) {
  const auto dividend = static_cast<std::uint32_t>(expert) * static_cast<std::uint32_t>(args.view.size);
  return static_cast<int>(std::uint64_t{dividend} * args.reciprocal >> 32);
}
/// The rank `i` behind mine, i from 1 to the number of ranks: a rank that sends begins behind itself, so that no link is
/// everybody's first.
FARWARP_DEVICE int rank_behind(const Args& args, int i) {
  const int rank = args.view.rank + i;
  return rank < args.view.size ? rank : rank - args.view.size;
}
FARWARP_DEVICE int first_expert(const Args& args, int rank) {
  return args.by_ranks.quotient(rank * args.num_experts + args.view.size - 1);  // moe_first_expert()
}

/// [thread] Bit r: the token has an expert on rank r.
FARWARP_DEVICE std::uint32_t destinations_of(Call& call, const Args& args, int token) {
  constexpr int kTogether = 8;
  std::uint32_t ranks = 0,
                largest = 0;  // of the entries + 1: 0 is a masked one, and those out of range exceed all others
#pragma unroll 1
  for (int first = 0; first < args.k; first += kTogether) {
    std::int32_t experts[kTogether];
    read_table(args, token * args.k + first, args.k - first, experts);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const std::uint32_t number = static_cast<std::uint32_t>(experts[i]) + 1;
      largest = number > largest ? number : largest;
      if (experts[i] >= 0) ranks |= 1u << (rank_of(args, experts[i]) & 31);
    }
  }
  checked_expert(call, args, static_cast<std::int32_t>(largest - 1));
  return ranks;
}

/// [warp] The ranks that some lane has; -1: none.
FARWARP_DEVICE std::uint32_t ranks_of_lanes(const Args& args, int rank) {
  std::uint32_t ranks = 0;
#pragma unroll 1
  for (int r = 0; r < args.view.size; ++r) ranks |= ballot(rank == r) != 0 ? 1u << r : 0u;
  return ranks;
}

/// [warp] The same as destinations_of() by all lanes at once, an entry each, which has been checked.
FARWARP_DEVICE std::uint32_t destinations_by_lanes(const Args& args, int token) {
  const int j = lane_index();
  const int expert = expert_or_none(args, table_entry(args, token * args.k + j, j < args.k));
  return ranks_of_lanes(args, expert >= 0 ? rank_of(args, expert) : -1);
}

/// [warp] Calls `work(rank)` for each of `ranks`, beginning behind mine.
template <class Work>
FARWARP_DEVICE void for_each_rank(const Args& args, std::uint32_t ranks, const Work& work) {
  const int after_mine = args.view.rank + 1, size = args.view.size;
  std::uint32_t behind =
      (ranks >> after_mine | ranks << (size - after_mine)) & ((1u << size) - 1);  // bit i: 1 + i behind
#pragma unroll 1
  for (; behind != 0; behind &= behind - 1) work(rank_behind(args, 1 + lowest_bit(behind)));
}

}  // namespace farwarp::FARWARP_TARGET::moe
