// Addresses in the workspace of every rank, and the two ways in which rows cross the link.
#pragma once

#include <type_traits>

#include "args.h"
#include "farwarp/ops/moe_a2a/encoding.dev.h"
#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET::ladder {

using namespace farwarp::lessons::ladder;
using moe::kElementsPer;
using moe::kStride;
using Cell = SystemCell<std::uint64_t>;

inline constexpr int kAhead = 4;  ///< vectors of a row that a lane has in flight, on every rung

// A vector is what a lane moves at once: 16 bytes of a row, or the 8 that a packet of 16 bytes carries.
template <int rung>
using Vector = std::conditional_t<(rung >= kPackets), std::uint64_t, Vec16>;
template <int rung>
using Element = std::conditional_t<(rung >= kPackets), Packet, Vec16>;  ///< a vector in memory that peers write
template <int rung>
using Word =
    std::conditional_t<(rung >= kPackets), Packet, std::uint64_t>;  ///< a word of a message's head in that memory

FARWARP_DEVICE void put(Peer<Vec16> to, Vec16 vector, std::uint32_t) { store(to, vector); }
FARWARP_DEVICE void put(Peer<std::uint64_t> to, std::uint64_t word, std::uint32_t) { store(to, word); }
FARWARP_DEVICE void put(Peer<Packet> to, std::uint64_t data, std::uint32_t tag) { store_packet(to, data, tag); }

template <int rung>
struct Memory {
  const Args& args;
  std::int64_t parity;  ///< which of the two sets of buffers
  std::uint32_t tag;    ///< of this call's flags and packets

  FARWARP_DEVICE explicit Memory(const Args& a, const Call& call) : args(a) {
    // Below kEpochs flags are cleared before each call, so all calls use the same tag.
    parity = rung >= kEpochs ? call.epoch & 1 : 0;
    tag = rung >= kEpochs ? call.epoch : 1;
  }

  FARWARP_DEVICE int me() const { return args.view.rank; }
  FARWARP_DEVICE int ranks() const { return args.view.size; }
  FARWARP_DEVICE int places() const { return places_of(args.shape, rung); }
  /// Vectors of a message, and of a row.
  FARWARP_DEVICE int length() const { return args.shape.hidden / args.shape.segments / kElementsPer<Vector<rung>>; }
  FARWARP_DEVICE int row_length() const { return args.shape.hidden / kElementsPer<Vector<rung>>; }

  /// In this rank's memory: number of messages that it has placed at `rank` in this call (`ahead` 0) or in the next
  /// (1).
  FARWARP_DEVICE Global<std::uint32_t> counter(int rank, int ahead = 0) const {
    return mine<std::uint32_t>(args.layout.counters) + (((parity + ahead) & 1) * ranks() + rank);
  }
  FARWARP_DEVICE Global<std::uint32_t> blocks_done(int phase) const {
    return mine<std::uint32_t>(args.layout.blocks_done) + phase;
  }

  // In the memory of `rank`:
  FARWARP_DEVICE Peer<Cell> count_cell(int rank, int source) const {
    return at<Cell>(rank, args.layout.counts) + (parity * ranks() + source);
  }
  FARWARP_DEVICE Peer<Cell> done_cell(int rank, int owner) const { return at<Cell>(rank, args.layout.done) + owner; }
  FARWARP_DEVICE Peer<Cell> message_flag(int rank, int source, std::uint32_t slot) const {
    return at<Cell>(rank, args.layout.message_flags) + message_number(source, slot);
  }
  FARWARP_DEVICE Peer<Cell> return_flag(int rank, int token, int place, int segment) const {
    return at<Cell>(rank, args.layout.return_flags) + (return_number(token, place) * args.shape.segments + segment);
  }
  FARWARP_DEVICE Peer<std::byte> message(int rank, int source, std::uint32_t slot) const {
    return at<std::byte>(rank, args.layout.messages) + message_number(source, slot) * args.layout.message_bytes;
  }
  /// A segment of the row that returns for (token, place).
  FARWARP_DEVICE Peer<Element<rung>> returned(int rank, int token, int place, int segment) const {
    return at<Element<rung>>(rank, args.layout.returns) +
           (return_number(token, place) * row_length() + segment * length());
  }

  FARWARP_DEVICE static Peer<Word<rung>> head(Peer<std::byte> message) {
    return Peer<Word<rung>>(reinterpret_cast<Word<rung>*>(message.raw));
  }
  FARWARP_DEVICE Peer<Element<rung>> data(Peer<std::byte> message) const {
    return Peer<Element<rung>>(reinterpret_cast<Element<rung>*>(message.raw + args.layout.message_data));
  }

 private:
  template <class T>
  FARWARP_DEVICE Peer<T> at(int rank, std::int64_t offset) const {
    return peer_address<T>(args.view, rank, args.workspace + offset);
  }
  template <class T>
  FARWARP_DEVICE Global<T> mine(std::int64_t offset) const {
    return own_address<T>(args.view, args.workspace + offset);
  }
  FARWARP_DEVICE std::int64_t message_number(int source, std::uint32_t slot) const {
    return (parity * ranks() + source) * most_messages_of(args.shape, rung) + slot;
  }
  FARWARP_DEVICE std::int64_t return_number(int token, int place) const {
    return (parity * args.shape.max_tokens + token) * places() + place;
  }
};

/// This rank's own part of memory that peers write, for reading.
template <class T>
FARWARP_DEVICE Global<T> own(Peer<T> address) {
  return Global<T>(address.raw);
}

FARWARP_DEVICE Shared<std::uint32_t> shared_counts() {
  return Shared<std::uint32_t>(reinterpret_cast<std::uint32_t*>(block_shared().raw));
}
/// This warp's part.
FARWARP_DEVICE Shared<float> shared_weights() {
  return Shared<float>(reinterpret_cast<float*>(block_shared().raw + kSharedWeights)) + warp_index() * kMaxTopK;
}

/// [block] Calls `work(item)` on a warp of the grid for each item below `items`. Consecutive items go to different
/// blocks. A warp stops when `work` returns false.
template <class Visit>
FARWARP_DEVICE void for_each_item(int items, const Visit& work) {
  const int warps = num_threads() / Target::kWarpSize;
#pragma unroll 1
  for (int item = warp_index() * num_blocks() + block_index(); item < items; item += warps * num_blocks()) {
    if (!work(item)) return;
  }
}

template <class Visit>
FARWARP_DEVICE void for_each_bit(std::uint64_t bits, const Visit& work) {
#pragma unroll 1
  for (; bits != 0; bits &= bits - 1) work(lowest_bit(bits));
}

/// [warp] False on all lanes if one lane has given up. Orders all lanes' reads after what any lane has acquired.
FARWARP_DEVICE bool all_live(Call& call) {
  warp_sync();
  if (ballot(!call.live) != 0) call.live = false;
  return call.live;
}

}  // namespace farwarp::FARWARP_TARGET::ladder
