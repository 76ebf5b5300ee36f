// Where data of a MoE layer lies, and the caller's tokens. Calls alternate between two buffers by the epoch's parity;
// ORDER.md says why two suffice.
#pragma once

#include "farwarp/ops/moe_layer/args.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

using namespace farwarp::moe_layer;

inline constexpr int kVectorElements = 8;  ///< 16-bit numbers of 16 bytes

struct Memory {
  const Args& args;
  std::uint32_t epoch;

  FARWARP_DEVICE int parity() const { return static_cast<int>(epoch & 1); }
  FARWARP_DEVICE int row_vectors() const { return args.hidden / kVectorElements; }

  // At rank `where`, from `source`.
  FARWARP_DEVICE Peer<Packet> header(int where, int source) const {
    return at<Packet>(where, args.offsets.headers) + pair(source);
  }
  FARWARP_DEVICE Peer<Packet> entry(int where, int source, int entry) const {
    return at<Packet>(where, args.offsets.entries) + (std::int64_t{pair(source)} * args.max_tokens * args.k + entry);
  }
  FARWARP_DEVICE Peer<SystemCell<std::uint64_t>> row_flag(int where, int source, int token) const {
    return at<SystemCell<std::uint64_t>>(where, args.offsets.row_flags) + slot(source, token);
  }
  FARWARP_DEVICE Peer<Vec16> row(int where, int source, int token) const {
    return at<Vec16>(where, args.offsets.rows) + slot(source, token) * row_vectors();
  }
  /// At the source `where` of a token, from `owner`.
  FARWARP_DEVICE Peer<Vec16> returned(int where, int token, int owner) const {
    const std::int64_t of_parity = (std::int64_t{parity()} * args.max_tokens + token) * args.view.size + owner;
    return peer_address<Vec16>(args.view, where, args.ones + args.offsets.returns) + of_parity * row_vectors();
  }

  // This rank's own.
  FARWARP_DEVICE Global<std::uint32_t> counters(int of_parity) const {
    return own_address<std::uint32_t>(args.view, args.ones + args.offsets.counters) +
           of_parity * counters_of(args.row_tiles);
  }
  FARWARP_DEVICE Global<std::uint32_t> counted() const { return counters(parity()) + kCounted; }
  FARWARP_DEVICE Global<std::uint32_t> listed() const { return counters(parity()) + kListed; }
  FARWARP_DEVICE Global<std::uint32_t> x_parts() const { return counters(parity()) + kXParts; }
  FARWARP_DEVICE Global<std::uint32_t> h_parts() const { return counters(parity()) + kHParts; }
  FARWARP_DEVICE Global<std::uint32_t> x_stored(int tile) const { return counters(parity()) + (kTileCounters + tile); }
  FARWARP_DEVICE Global<std::uint32_t> h_stored(int tile) const { return x_stored(args.row_tiles + tile); }
  FARWARP_DEVICE Global<std::uint32_t> y_stored(int tile) const { return h_stored(args.row_tiles + tile); }
  FARWARP_DEVICE Global<std::uint32_t> counts(int slice) const {
    return own<std::uint32_t>(args.offsets.counts) + slice * args.local_experts;
  }
  FARWARP_DEVICE Global<std::int32_t> row_ids() const { return own<std::int32_t>(args.offsets.row_ids); }
  FARWARP_DEVICE Global<std::int32_t> position(int source, int entry) const {
    return own<std::int32_t>(args.offsets.positions) + (source * args.max_tokens * args.k + entry);
  }
  FARWARP_DEVICE Global<Vec16> x_or_y(int row) const {
    return own<Vec16>(args.offsets.y) + std::int64_t{row} * row_vectors();
  }

 private:
  template <class T>
  FARWARP_DEVICE Peer<T> at(int rank, std::int64_t offset) const {
    return peer_address<T>(args.view, rank, args.workspace + offset);
  }
  template <class T>
  FARWARP_DEVICE Global<T> own(std::int64_t offset) const {
    return own_address<T>(args.view, args.workspace + offset);
  }
  FARWARP_DEVICE int pair(int source) const { return parity() * args.view.size + source; }
  FARWARP_DEVICE std::int64_t slot(int source, int token) const {
    return std::int64_t{pair(source)} * args.max_tokens + token;
  }
};

template <class T>
FARWARP_DEVICE Global<T> mine(Peer<T> address) {
  return Global<T>(address.raw);
}

/// The rank `i` after mine, i from 1 to the number of ranks. A rank sends to the rank after it first, so that the ranks
/// do not all begin with the same link.
FARWARP_DEVICE int rank_after(const Args& args, int i) {
  const int rank = args.view.rank + i;
  return rank < args.view.size ? rank : rank - args.view.size;
}

FARWARP_DEVICE int threads_of_grid() { return num_blocks() * num_threads(); }
FARWARP_DEVICE int thread_in_grid() { return block_index() * num_threads() + thread_index(); }

/// A top-k entry of a token.
struct Entry {
  int expert = -1;  ///< none
  float weight = 0;
};

/// Kernels of two multipliers change their register counts, so they may call no function.
template <int multipliers>
inline constexpr Failure kFailure = multipliers > 1 ? Failure::inlined : Failure::called;

/// [thread] Gives up, unless the call is over.
template <Failure failure>
FARWARP_DEVICE void complain(Call& call, StatusCode kind, std::uint32_t site, std::int64_t allowed,
                             std::int64_t found) {
  if (!call.live) return;
  const auto expected = static_cast<std::uint64_t>(allowed), seen = static_cast<std::uint64_t>(found);
  if constexpr (failure == Failure::called) {
    give_up(call, kind, site, -1, expected, seen);
  } else {
    give_up_inlined(call, kind, site, -1, expected, seen);
  }
}

/// [thread] Waits for what other blocks of this launch count.
template <Failure failure>
FARWARP_DEVICE bool wait_counted(Call& call, Global<std::uint32_t> counter, int count, Site site, std::uint32_t depth) {
  return wait_count<Scope::device, failure, Order::acquire>(call, counter, counted_to(count),
                                                            {.site = site, .peer = -1, .depth = depth});
}

/// [thread] An entry of this rank's tokens, as the caller gives it. `bad`: its expert, if that is not allowed.
FARWARP_DEVICE Entry own_entry(const Args& args, int entry, std::int64_t& bad) {
  std::int64_t listed = 0;
  if (args.wide_indices != 0) {
    listed = load(Global<const std::int64_t>(static_cast<const std::int64_t*>(args.topk)) + entry);
  } else {
    listed = load(Global<const std::int32_t>(static_cast<const std::int32_t*>(args.topk)) + entry);
  }
  const bool allowed = listed >= -1 && listed < args.num_experts;
  if (!allowed) bad = listed;
  return {allowed ? static_cast<int>(listed) : -1, load(Global<const float>(args.weights) + entry)};
}

/// [thread] An entry of `source`. Of a peer it waits for it. None if the call is over. `bad`: as of own_entry().
template <Failure failure>
FARWARP_DEVICE Entry entry_of(Call& call, const Memory& memory, int source, int entry, std::int64_t& bad) {
  if (source == memory.args.view.rank) return own_entry(memory.args, entry, bad);
  const Global<Packet> from[] = {mine(memory.entry(memory.args.view.rank, source, entry))};
  std::uint64_t data[1] = {};
  if (!wait_packets<1, failure>(call, from, 1, data, Wait{.site = kSiteEntry, .peer = source})) return {};
  return {static_cast<std::int32_t>(data[0]), std::bit_cast<float>(static_cast<std::uint32_t>(data[0] >> 32))};
}

/// [thread] The expert's number on this rank, or -1: none, or another rank's.
FARWARP_DEVICE int local_expert(const Args& args, int expert) {
  const int local = expert - args.first_expert;
  return expert >= 0 && local >= 0 && local < args.local_experts ? local : -1;
}
/// [thread] -1 of a negative number.
FARWARP_DEVICE int owner_of(const Args& args, int expert) {
  int rank = -1;
#pragma unroll
  for (int r = 0; r < farwarp::kMaxRanks; ++r) rank += args.first_experts[r] <= expert ? 1 : 0;
  return rank;
}
/// [warp] Bit r: a lane's expert lives on rank r.
FARWARP_DEVICE std::uint32_t owners_of(const Args& args, int expert) {
  const int owner = owner_of(args, expert);
  std::uint32_t owners = 0;
  for (int r = 0; r < args.view.size; ++r) owners |= ballot(owner == r) != 0 ? 1u << r : 0u;
  return owners;
}

}  // namespace farwarp::FARWARP_TARGET::moe_layer
