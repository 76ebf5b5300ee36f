// Where data of the MoE all-to-all lies: addresses in the workspace of every rank and in the block's shared memory, and
// segments of rows. Which inbox slots are retagged, and which blocks and warps do what. Calls alternate between two
// buffers by the epoch's parity; ORDER.md says why two suffice.
#pragma once

#include "farwarp/ops/moe_a2a/args.h"
#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

/// What one lane reads or writes of a row at once: eight numbers.
using Vector = Vec16;
template <class U>
inline constexpr int kElementsPer = static_cast<int>(sizeof(U) / 2);  ///< 16-bit numbers in a vector of type U

struct Regions {
  const Args& args;
  int parity;

  FARWARP_DEVICE int ranks() const { return args.view.size; }
  FARWARP_DEVICE int me() const { return args.view.rank; }
  /// Packets at `where` from `source`. For each 32 tokens: a bitmap of those that have a row at `where` | folded
  /// configuration << 32. Then, in the split form, the counts of the local experts, two in a packet.
  FARWARP_DEVICE Peer<Packet> header(int where, int source) const {
    return at<Packet>(where, args.offsets.headers) + pair(source) * args.header_packets;
  }
  /// Packets at `where` from `source`, one for each k-slot: a route or kNoRoute.
  FARWARP_DEVICE Peer<Packet> routes(int where, int source, std::int32_t token) const {
    return at<Packet>(where, args.offsets.routes) + row_slot(source, token) * args.k;
  }
  /// Packets at `where` from `from`, one for each copy of the row there, in k-slot order: the weights that are given to
  /// combine. kRows: at the source `where` of a token, from an owner, one for each k-slot: the weights that the owner
  /// returns.
  FARWARP_DEVICE Peer<Packet> combine_weights(int where, int from, std::int32_t token) const {
    return at<Packet>(where, args.offsets.combine_weights) + row_slot(from, token) * args.k;
  }
  /// A row's data at `where` from `source`, in the wire's format.
  FARWARP_DEVICE Peer<std::byte> row(int where, int source, std::int32_t token) const {
    return at<std::byte>(where, args.offsets.rows + std::int64_t{row_slot(source, token)} * args.send.row_bytes);
  }
  /// At the source `where`: what `owner` returns for `token`, a partial sum or, with rings, a row. Those of all owners
  /// for a token are consecutive.
  FARWARP_DEVICE Peer<Vector> returned(int where, std::int32_t token, int owner) const {
    return at<Vector>(where, args.offsets.returns) + std::int64_t{return_slot(token, owner)} * vectors();
  }
  FARWARP_DEVICE int vectors() const { return args.hidden / kElementsPer<Vector>; }
  /// Bulk mode, at `where` from `source`: the flag of a row's segment. A row's flags are consecutive.
  FARWARP_DEVICE Peer<SystemCell<std::uint64_t>> row_flag(int where, int source, std::int32_t token,
                                                          int segment) const {
    return at<SystemCell<std::uint64_t>>(where, args.offsets.row_flags) +
           (row_slot(source, token) * args.segments + segment);
  }
  /// With rings, at the source `where`: the flag of a segment of the row that `owner` returns for `token`.
  FARWARP_DEVICE Peer<SystemCell<std::uint64_t>> return_flag(int where, std::int32_t token, int owner,
                                                             int segment) const {
    return at<SystemCell<std::uint64_t>>(where, args.offsets.return_flags) +
           (return_slot(token, owner) * args.segments + segment);
  }
  // What dispatch keeps for combine, in this rank's own memory (Args::kept).
  /// With rings: the output row of the row that `source` has sent for `token`; -1: none.
  FARWARP_DEVICE Global<std::int32_t> kept_output_row(int source, std::int32_t token) const {
    return Global<std::int32_t>(reinterpret_cast<std::int32_t*>(args.kept + kKeptRowsAt)) +
           (source * args.max_tokens + token);
  }
  /// Without rings: the number of rows that have arrived, and the record of each: pack_row(), then pack_copy() of each
  /// of its copies, in k-slot order. `row_number`: ReceivedSegment::row_number.
  FARWARP_DEVICE Global<std::uint32_t> kept_record_count() const {
    return Global<std::uint32_t>(reinterpret_cast<std::uint32_t*>(args.kept));
  }
  FARWARP_DEVICE Global<std::uint64_t> kept_record(int row_number) const {
    return Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(args.kept + kKeptRowsAt)) + row_number * (1 + args.k);
  }

 private:
  template <class T>
  FARWARP_DEVICE Peer<T> at(int rank, std::int64_t offset) const {
    return peer_address<T>(args.view, rank, args.workspace + offset);
  }
  // Inbox slots: where peers write rows and returns. Within the plan's limits 32 bits suffice to number them. Only byte
  // offsets take 64 bits: a 64-bit product is several instructions.
  FARWARP_DEVICE std::int32_t row_slot(int source, std::int32_t token) const {
    return pair(source) * args.max_tokens + token;
  }
  FARWARP_DEVICE std::int32_t return_slot(std::int32_t token, int owner) const {
    return (parity * args.max_tokens + token) * ranks() + owner;
  }
  FARWARP_DEVICE std::int32_t pair(int rank) const { return parity * ranks() + rank; }
};

FARWARP_DEVICE Regions regions_of(const Args& args, const Call& call) {
  return {args, static_cast<int>(call.epoch & 1)};
}

/// This rank's own part of memory that peers write, for reading.
template <class T>
FARWARP_DEVICE Global<T> mine(Peer<T> address) {
  return Global<T>(address.raw);
}

template <class T>
FARWARP_DEVICE Shared<T> shared_at(std::int64_t offset) {
  return Shared<T>(reinterpret_cast<T*>(block_shared().raw + offset));
}

/// [block] Gives packets in this rank's memory a recent tag that no call will wait for (ORDER.md, "Tags").
FARWARP_DEVICE void retag(const Call& call, Peer<Packet> packets, int count) {
  for (int i = thread_index(); i < count; i += num_threads()) store_packet(packets + i, 0, call.epoch - 1);
}
/// Calls `retag_slot(token, rank)` for the inbox slots whose turn it is in this call. There is one for each token and
/// rank: the rank is the token's source, or the owner that returns to this rank. A slot that is idle for exactly 2^32 -
/// 4 calls would otherwise show its old contents as new, so its turn comes once in kRetagPeriod calls of its parity.
template <class Visit>
FARWARP_DEVICE void for_each_slot_to_retag(const Call& call, const Args& args, const Visit& retag_slot) {
  const int slots = args.max_tokens * args.view.size;
#pragma unroll 1
  for (auto slot = static_cast<int>((call.epoch / 2) % kRetagPeriod); slot < slots;
       slot += static_cast<int>(kRetagPeriod)) {
    const int token = args.by_ranks.quotient(slot), rank = slot - token * args.view.size;
    retag_slot(token, rank);
  }
}

// Who does what (Roles).
FARWARP_DEVICE bool is_sending_block(const Args& args) { return block_index() < args.roles.sending_blocks; }
FARWARP_DEVICE int worker_index(const Args& args) { return block_index() - args.roles.first_worker; }
FARWARP_DEVICE bool is_worker(const Args& args) {
  return worker_index(args) >= 0 && worker_index(args) < args.roles.workers;
}
/// The first worker writes what is written once per rank.
FARWARP_DEVICE bool is_first_worker(const Args& args) { return worker_index(args) == 0; }

FARWARP_DEVICE int warps_per_block() { return num_threads() / Target::kWarpSize; }
/// The warp's number among the sending warps. For a warp that does not send it is not less than their count.
FARWARP_DEVICE int sending_warp_number(const Args& args) {
  return is_sending_block(args) ? warp_index() * args.roles.sending_blocks + block_index()
                                : args.roles.sending_blocks * args.roles.sending_warps;
}
/// The warp's number among all workers' warps; for warps of workers only.
FARWARP_DEVICE int worker_warp_number(const Args& args) {
  return warp_index() * args.roles.workers + worker_index(args);
}
/// The warp's number in the grid. Consecutive numbers are in different blocks, so that few items are spread over all
/// multiprocessors.
FARWARP_DEVICE int warp_in_grid() { return warp_index() * num_blocks() + block_index(); }
FARWARP_DEVICE int warps_of_grid() { return warps_per_block() * num_blocks(); }

// ---- segments of rows -----------------------------------------------------------------------------------------------

/// A segment of a token's row: vectors [first, last).
struct Segment {
  int token;
  int number;  ///< of the segment in its row
  int first, last;
};

/// A segment at the owner, where it may still have to arrive. One warp works on it.
struct ReceivedSegment {
  int source;
  std::int32_t token;  ///< its number at the source
  int row_number;      ///< of the row among those that arrive (ArrivingRows)
  int number;          ///< of the segment in its row
  int first, last;     ///< vectors
};

/// First vector of a row's segment, a multiple of `align`. For segment number args.segments: the end of the row.
template <int align>
FARWARP_DEVICE int segment_start(const Args& args, int segment) {
  const int start = args.by_segments.quotient(args.hidden / kElementsPer<Vector> * segment);
  return align == 1 || segment == args.segments ? start : start / align * align;
}

template <int align>
FARWARP_DEVICE Segment segment_of(const Args& args, int token, int number) {
  return {token, number, segment_start<align>(args, number), segment_start<align>(args, number + 1)};
}

}  // namespace farwarp::FARWARP_TARGET::moe
