// At the source: where a token goes, and how its row is sent.
#pragma once

#include <bit>

#include "farwarp/world/device/call.dev.h"
#include "memory.dev.h"

namespace farwarp::FARWARP_TARGET::ladder {

/// A token's row for one destination. Lane p of a warp holds the token's parcel of place p.
struct Parcel {
  int rank;               ///< the destination; -1: none
  std::uint32_t entries;  ///< bit j: the row serves the token's entry j
};

FARWARP_DEVICE int rank_of_entry(const Args& args, int entry) {
  const std::int32_t expert = load(Global<const std::int32_t>(args.topk) + entry);
  return expert < 0 ? -1 : expert * args.view.size / args.shape.num_experts;
}

/// [warp] A parcel for each entry; from kRankDedup on, one for each distinct rank.
template <int rung>
FARWARP_DEVICE Parcel parcel_of_lane(const Args& args, int token) {
  const int lane = lane_index();
  const int rank = lane < args.shape.k ? rank_of_entry(args, token * args.shape.k + lane) : -1;
  if constexpr (rung < kRankDedup) return {rank, rank < 0 ? 0 : 1u << lane};
  Parcel parcel{-1, 0};
  for (int r = 0; r < args.view.size; ++r) {
    const auto entries = static_cast<std::uint32_t>(ballot(rank == r));
    if (lane == r && entries != 0) parcel = {r, entries};
  }
  return parcel;
}

/// [block] The last block counts the messages to every rank, with a thread for each token, and sends the counts. A
/// count and its tag are one word, so no memory order is needed.
template <int rung>
FARWARP_DEVICE void announce_counts(const Memory<rung>& memory) {
  if (block_index() != num_blocks() - 1) return;
  const Args& args = memory.args;
  const Shared<std::uint32_t> counts = shared_counts();
  if (thread_index() < memory.ranks()) store(counts + thread_index(), 0u);
  block_sync();
  for (int token = thread_index(); token < args.tokens; token += num_threads()) {
    std::uint32_t seen = 0;
    for (int j = 0; j < args.shape.k; ++j) {
      const int rank = rank_of_entry(args, token * args.shape.k + j);
      if (rank < 0 || (rung >= kRankDedup && (seen >> rank & 1) != 0)) continue;
      seen |= 1u << rank;
      fetch_add(counts + rank, static_cast<std::uint32_t>(args.shape.segments));
    }
  }
  block_sync();
  if (const int rank = thread_index(); rank < memory.ranks()) {
    store<Order::relaxed>(memory.count_cell(rank, memory.me()), tagged(memory.tag, load(counts + rank)));
    // The next call's counters are cleared after the counts are sent, so that no peer waits for it.
    if constexpr (rung >= kEpochs) store(memory.counter(rank, 1), 0u);
  }
  block_sync();  // await_counts() will store the sources' counts in the same shared memory
}

/// [warp] Sends one segment of a token's row to the destination of each of its parcels.
template <int rung>
FARWARP_DEVICE void send_segment(Call& call, const Memory<rung>& memory, int token, int segment) {
  const Args& args = memory.args;
  const Shape& shape = args.shape;
  const int lane = lane_index();
  Parcel parcel = parcel_of_lane<rung>(args, token);
  std::uint32_t slot = 0;
  std::uint64_t address = 0;
  if (parcel.rank >= 0) {
    slot = fetch_add<Order::relaxed, Scope::device>(memory.counter(parcel.rank), 1u);
    address = reinterpret_cast<std::uint64_t>(memory.message(parcel.rank, memory.me(), slot).raw);
    if (slot >= static_cast<std::uint32_t>(most_messages_of(shape, rung))) [[unlikely]] {
      give_up(call, StatusCode::kCapacity, kSiteRoom, parcel.rank, most_messages_of(shape, rung), slot + 1);
      parcel.rank = -1;
    } else if (slot + 1 == args.drop_put) {
      parcel.rank = -1;
    }
  }
  const std::uint64_t parcels = ballot(parcel.rank >= 0);

  // The head: lane i has word i.
  const float weight = lane < shape.k ? load(Global<const float>(args.weights) + (token * shape.k + lane)) : 0;
  const auto bits = std::bit_cast<std::uint32_t>(weight);
  const int pair = (2 * lane - 2) & (Target::kWarpSize - 1);
  const std::uint32_t even = shuffle(bits, pair), odd = shuffle(bits, pair + 1);
  for_each_bit(parcels, [&](int p) {
    const Peer<std::byte> message(reinterpret_cast<std::byte*>(shuffle(address, p)));
    const std::uint32_t entries = shuffle(parcel.entries, p);
    const std::uint64_t word =
        lane == 0 ? tagged(entries, static_cast<std::uint32_t>(segment << 16 | token)) : tagged(odd, even);
    if (lane < head_words_of(shape)) put(memory.head(message) + lane, word, memory.tag);
  });

  const int length = memory.length();
  const Global<const Vector<rung>> x = Global<const Vector<rung>>(static_cast<const Vector<rung>*>(args.x)) +
                                       (static_cast<std::int64_t>(token) * memory.row_length() + segment * length);
#pragma unroll 1
  for (int base = 0; base < length; base += kAhead * kStride) {
    const int u = base + lane;
    Vector<rung> vectors[kAhead] = {};
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (u + a * kStride < length) vectors[a] = load(x + (u + a * kStride));
    }
    for_each_bit(parcels, [&](int p) {
      const Peer<std::byte> message(reinterpret_cast<std::byte*>(shuffle(address, p)));
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (u + a * kStride < length) put(memory.data(message) + (u + a * kStride), vectors[a], memory.tag);
      }
    });
  }
  if constexpr (rung >= kTokenFlags && rung < kPackets) {
    warp_sync();  // so that a release by any lane publishes the stores of all
    if (parcel.rank >= 0) {
      store<Order::release>(memory.message_flag(parcel.rank, memory.me(), slot), tagged(memory.tag, 0));
    }
  }
}

/// [block] kRankFlags: the last block that calls it knows that all blocks have stored, and signals every rank.
template <class CellOf, class ValueOf>
FARWARP_DEVICE void signal_ranks_after_grid(Global<std::uint32_t> blocks_done, int ranks, const CellOf& cell_of,
                                            const ValueOf& value_of) {
  drain_stores();
  block_sync();
  bool last = false;
  if (thread_index() == 0) {
    const auto before = fetch_add<Order::acq_rel, Scope::device>(blocks_done, 1u);
    last = before + 1 == static_cast<std::uint32_t>(num_blocks());
  }
  if (block_any(last)) signal_after_block(ranks, cell_of, value_of);
}

/// [block] Sends this rank's tokens; waits for nobody.
template <int rung>
FARWARP_DEVICE void dispatch(Call& call, const Memory<rung>& memory) {
  const Args& args = memory.args;
  if constexpr (rung >= kTokenFlags) announce_counts(memory);
  const int segments = args.shape.segments;
  for_each_item(args.tokens * segments, [&](int item) {
    const int token = item / segments;
    send_segment(call, memory, token, item - token * segments);
    return true;
  });
  if constexpr (rung < kTokenFlags) {
    signal_ranks_after_grid(
        memory.blocks_done(0), memory.ranks(), [&](int rank) { return memory.count_cell(rank, memory.me()); },
        [&](int rank) { return tagged(memory.tag, load<Order::relaxed, Scope::device>(memory.counter(rank))); });
  }
}

}  // namespace farwarp::FARWARP_TARGET::ladder
