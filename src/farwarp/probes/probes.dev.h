// The kernels that measure a machine. Events around the launch time those that move memory. Those that exchange flags
// read the device's clock themselves, because a launch takes longer than what they measure.
#pragma once

#include "farwarp/probes/args.h"
#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::probes {

using namespace farwarp::probes;

// ---- memory and links ----------------------------------------------------------------------------------------------

/// Vector number `v` of tile `tile`.
FARWARP_DEVICE Vec16 vector_at(const StreamArgs& args, int tile, int v) {
  const std::uint64_t j = static_cast<std::uint64_t>(tile) * args.tile_stride + static_cast<std::uint64_t>(2 * v);
  return {word_at(args.seed, j), word_at(args.seed, j + 1)};
}

FARWARP_DEVICE std::int64_t first_vector(int tile) { return static_cast<std::int64_t>(tile) * kTileVectors; }

/// [block] Calls visit(tile) for every tile of this block.
template <class Visit>
FARWARP_DEVICE void for_each_tile(const StreamArgs& args, const Visit& visit) {
  for (int tile = block_index(); tile < args.tiles; tile += num_blocks()) visit(tile);
}

/// [block] Calls visit(target, tile) for every tile of this block in every target. Neighbouring blocks take different
/// targets. Each rank's first target is the rank after it, so that the ranks do not all begin with the same one.
template <class Visit>
FARWARP_DEVICE void for_each_target_tile(const StreamArgs& args, const Visit& visit) {
  const int pieces = args.tiles * args.target_count;
  for (int i = block_index(); i < pieces; i += num_blocks())
    visit(args.targets[i % args.target_count], i / args.target_count);
}

/// [warp] out[warp of the grid] = the sum of `value` over the warp.
FARWARP_DEVICE void store_warp_sum(const StreamArgs& args, std::uint64_t value) {
  for (int distance = Target::kWarpSize / 2; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
  const int warps = num_threads() / Target::kWarpSize;
  if (lane_index() == 0) store(Global<std::uint64_t>(args.out) + (block_index() * warps + warp_index()), value);
}

/// [block] Loads one tile into registers; issues all loads before the first use.
template <Cache cache, class Pointer>
FARWARP_DEVICE void load_tile(Vec16 (&vectors)[kUnroll], Pointer source, int tile) {
  const Pointer from = source + (first_vector(tile) + thread_index());
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) vectors[i] = load<cache>(from + i * kStreamThreads);
}

/// The sum proves that every word was read once, and keeps the compiler from removing the loads.
template <Cache cache, class Pointer>
FARWARP_DEVICE void read_tiles(const StreamArgs& args, Pointer source) {
  std::uint64_t sum = 0;
  for_each_tile(args, [&](int tile) {
    Vec16 vectors[kUnroll];
    load_tile<cache>(vectors, source, tile);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) sum += vectors[i].lo + vectors[i].hi;
  });
  store_warp_sum(args, sum);
}

/// Reads this rank's own memory once, so caching is of no use.
FARWARP_DEVICE void read_memory(const StreamArgs& args) {
  read_tiles<Cache::streaming>(args, Global<const Vec16>(args.source));
}

FARWARP_DEVICE void load_from_peer(const StreamArgs& args) {
  read_tiles<Cache::normal>(args, Peer<const Vec16>(args.source));
}

FARWARP_DEVICE void copy_memory(const StreamArgs& args) {
  const Global<Vec16> target(args.targets[0]);
  for_each_tile(args, [&](int tile) {
    Vec16 vectors[kUnroll];
    load_tile<Cache::streaming>(vectors, Global<const Vec16>(args.source), tile);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      store<Cache::streaming>(target + (first_vector(tile) + thread_index() + i * kStreamThreads), vectors[i]);
    }
  });
}

/// Stores from registers, so that only the target's memory takes part.
FARWARP_DEVICE void store_to_targets(const StreamArgs& args) {
  for_each_target_tile(args, [&](Vec16* target, int tile) {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int v = thread_index() + i * kStreamThreads;
      store(Peer<Vec16>(target) + (first_vector(tile) + v), vector_at(args, tile, v));
    }
  });
}

/// Copies from shared memory; one thread of each block issues. All tiles are equal (tile_stride is 0), so the copies
/// need not wait for each other.
FARWARP_DEVICE void bulk_copy_to_targets(const StreamArgs& args) {
  if constexpr (Target::kHasBulkCopy) {
    const Shared<Vec16> stage(reinterpret_cast<Vec16*>(block_shared().raw));
    for (int v = thread_index(); v < kTileVectors; v += num_threads()) store(stage + v, vector_at(args, 0, v));
    proxy_fence();
    block_sync();
    if (thread_index() != 0) return;
    for_each_target_tile(args, [&](Vec16* target, int tile) {
      bulk_store(Peer<std::byte>(reinterpret_cast<std::byte*>(target + first_vector(tile))), block_shared(),
                 kTileBytes);
      bulk_commit();
    });
    bulk_wait_all();
  }
}

/// Counts the words that differ from the expected ones.
FARWARP_DEVICE void check_tiles(const StreamArgs& args) {
  std::uint64_t wrong = 0;
  for_each_tile(args, [&](int tile) {
    Vec16 vectors[kUnroll];
    load_tile<Cache::streaming>(vectors, Global<const Vec16>(args.source), tile);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const Vec16 expected = vector_at(args, tile, thread_index() + i * kStreamThreads);
      wrong += (vectors[i].lo != expected.lo) + (vectors[i].hi != expected.hi);
    }
  });
  store_warp_sum(args, wrong);
}

// ---- latencies -----------------------------------------------------------------------------------------------------
//
// The cells of a round are written again in the same round of the next call. That is safe for all but the first message
// of a call:
// the writer has then received an answer to an earlier message of this call, which the reader sent after it had left
// the previous call. It is safe for the first message, too: a call has several rounds, so the reader read those cells
// rounds ago.

using Cell = SystemCell<std::uint64_t>;

/// A word and its tag in one cell, released and acquired: a signal for data in other memory.
struct FlagChannel {
  const SyncArgs& args;
  FARWARP_DEVICE Peer<Cell> cell(int rank, int round) const {
    return peer_address<Cell>(args.view, rank, args.flags) + round;
  }
  FARWARP_DEVICE void send(const Call& call, int rank, int round, std::uint32_t value) const {
    signal_cell<Order::release>(cell(rank, round), tagged(call.epoch, value));
  }
  FARWARP_DEVICE bool receive(Call& call, int from, int round, std::uint32_t& value) const {
    return wait_tagged(call, Global<Cell>(cell(args.view.rank, round).raw), call.epoch, value,
                       Wait{.site = kSiteFlag, .peer = from});
  }
};

/// A packet, which carries its data itself.
struct PacketChannel {
  const SyncArgs& args;
  FARWARP_DEVICE Peer<Packet> packet(int rank, int round) const {
    return peer_address<Packet>(args.view, rank, args.packets) + round;
  }
  FARWARP_DEVICE void send(const Call& call, int rank, int round, std::uint32_t value) const {
    store_packet(packet(rank, round), value, call.epoch);
  }
  FARWARP_DEVICE bool receive(Call& call, int from, int round, std::uint32_t& value) const {
    const Global<Packet> mine[1] = {Global<Packet>(packet(args.view.rank, round).raw)};
    std::uint64_t data[1] = {};
    const bool arrived = wait_packets<1>(call, mine, 1, data, Wait{.site = kSitePacket, .peer = from});
    value = static_cast<std::uint32_t>(data[0]);
    return arrived;
  }
};

/// [thread] Rank 0 sends a number in each round; rank 1 adds one and sends it back.
template <class Channel>
FARWARP_DEVICE void throw_and_catch(Call& call, const SyncArgs& args, const Channel& channel) {
  const int me = args.view.rank, other = 1 - me;
  std::uint64_t started = 0, sum = 0;
  for (int round = 0; round < args.rounds && call.live; ++round) {
    if (round == kWarmUpRounds) started = nanoseconds();
    auto value = static_cast<std::uint32_t>(round);
    if (me == 0) channel.send(call, other, round, value);
    if (!channel.receive(call, other, round, value)) break;
    if (me == 1) channel.send(call, other, round, value + 1);
    sum += value;
  }
  store(Global<std::uint64_t>(args.out), nanoseconds() - started);
  store(Global<std::uint64_t>(args.out) + 1, sum);
}

template <class Channel>
FARWARP_DEVICE void ping_pong(const SyncArgs& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  if (args.view.rank < 2 && thread_index() == 0) throw_and_catch(call, args, Channel{args});
  end_call(call, 0);
}

/// [block] Barriers of all ranks, one after the other. Each also publishes what the block has written before it.
FARWARP_DEVICE void barrier_rounds(const SyncArgs& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  const int me = args.view.rank, ranks = args.view.size, from = thread_index();
  const auto cell_at = [&](int rank, int round, int writer) {
    return peer_address<Cell>(args.view, rank, args.barriers) + (round * ranks + writer);
  };
  std::uint64_t started = 0, sum = 0;
  for (int round = 0; round < args.rounds && call.live; ++round) {
    if (round == kWarmUpRounds) started = nanoseconds();
    const auto value = static_cast<std::uint32_t>(round + me);
    signal_after_block(
        ranks, [&](int rank) { return cell_at(rank, round, me); }, [&](int) { return tagged(call.epoch, value); });
    std::uint32_t theirs = 0;
    if (from < ranks) {
      wait_tagged(call, Global<Cell>(cell_at(me, round, from).raw), call.epoch, theirs,
                  Wait{.site = kSiteBarrier, .peer = from});
    }
    sum += theirs;
    call.live = !block_any(!call.live);
  }
  if (from == 0) store(Global<std::uint64_t>(args.out), nanoseconds() - started);
  if (from < ranks) store(Global<std::uint64_t>(args.out) + (1 + from), sum);
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::probes
