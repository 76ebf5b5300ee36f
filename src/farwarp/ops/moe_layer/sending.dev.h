// What a source sends: its number of tokens, all its experts and weights, and each token's row once to each other rank
// that has one of its experts.
#pragma once

#include "farwarp/ops/moe_layer/memory.dev.h"
#include "farwarp/world/device/put_row.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

/// [thread] Whether this call renews the tags of packets and flags that it does not use.
FARWARP_DEVICE bool renews_tags(const Memory& memory) { return memory.epoch / 2 % kRetagPeriod == 0; }

/// [block] Numbers of tokens, experts and weights: packets to each peer.
FARWARP_DEVICE void send_entries(const Args& args, const Memory& memory, int tokens) {
  const int me = args.view.rank;
  if (block_index() == 0 && thread_index() < args.view.size && thread_index() != me)
    store_packet(memory.header(thread_index(), me), static_cast<std::uint32_t>(tokens), memory.epoch);
  const int used = tokens * args.k, all = renews_tags(memory) ? args.max_tokens * args.k : used;
  for (int i = thread_in_grid(); i < all; i += threads_of_grid()) {
    std::int64_t bad = 0;
    const Entry entry = i < used ? own_entry(args, i, bad) : Entry{};
    const std::uint64_t data = static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(entry.weight)) << 32 |
                               static_cast<std::uint32_t>(entry.expert);
    for (int after = 1; after < args.view.size; ++after)
      store_packet(memory.entry(rank_after(args, after), me, i), data, memory.epoch);
  }
}

/// Bit i: bit rank_after(i + 1) of `ranks`. Without this rank.
FARWARP_DEVICE std::uint32_t ranks_after(const Args& args, std::uint32_t ranks) {
  const int after_mine = args.view.rank + 1, size = args.view.size;
  return (ranks >> after_mine | ranks << (size - after_mine)) & ((1u << (size - 1)) - 1);
}

/// [block] Each warp takes whole rows. A row is read once, and written once to each peer.
FARWARP_DEVICE void send_rows(Call& call, const Args& args, const Memory& memory, int tokens) {
  const int me = args.view.rank, warps = threads_of_grid() / Target::kWarpSize;
  VectorRowPut put({}, 0, {});
  const int all = renews_tags(memory) ? args.max_tokens : tokens;
  for (int token = thread_in_grid() / Target::kWarpSize; token < all; token += warps) {
    std::int64_t bad = 0;
    const bool is_entry = token < tokens && lane_index() < args.k;
    const int expert = is_entry ? own_entry(args, token * args.k + lane_index(), bad).expert : -1;
    const std::uint32_t owners = ranks_after(args, owners_of(args, expert));
    const std::uint32_t flagged = renews_tags(memory) ? (1u << (args.view.size - 1)) - 1 : owners;
    if (flagged == 0 || static_cast<std::uint32_t>(token) + 1 == args.drop_put) continue;
    Peer<std::byte> to[farwarp::kMaxRanks - 1];
#pragma unroll
    for (int i = 0; i < farwarp::kMaxRanks - 1; ++i) {
      const int rank = i + 1 < args.view.size ? rank_after(args, i + 1) : me;
      to[i] = Peer<std::byte>(reinterpret_cast<std::byte*>(memory.row(rank, me, token).raw));
    }
    const Global<const std::byte> row(static_cast<const std::byte*>(args.x) + std::int64_t{token} * args.hidden * 2);
    if (owners != 0) put.put(call, row, args.hidden * 2, to, owners, kSiteRow);
    signal_after_warp([&] {
      for (int i = 0; i + 1 < args.view.size; ++i)
        if (flagged >> i & 1)
          signal_cell<Order::relaxed>(memory.row_flag(rank_after(args, i + 1), me, token), tagged(memory.epoch, 0));
    });
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe_layer
