// Where things lie: the workspace of the MoE all-to-all on every rank, and the block's shared memory. Parity buffers
// alternate between calls; README.md argues why two suffice.
#pragma once

#include "farwarp/ops/moe_a2a/args.h"
#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using farwarp::moe::Args;
using farwarp::moe::Route;

struct Regions {
  const Args& args;
  int parity;

  FARWARP_DEVICE int ranks() const { return args.view.size; }
  FARWARP_DEVICE int me() const { return args.view.rank; }
  FARWARP_DEVICE int row_vectors() const { return args.hidden / 8; }  // of 16 bytes
  FARWARP_DEVICE int data_packets() const { return args.hidden / 4; }
  FARWARP_DEVICE int row_packets() const { return 1 + args.k + data_packets(); }

  /// Packets at `where` from `source`: word 0 rows | tokens << 32, word 1 the configuration, then counts of the local experts.
  FARWARP_DEVICE Peer<Packet> header(int where, int source) const {
    return at<Packet>(where, args.offsets.headers) + pair(source) * args.header_packets;
  }
  /// Packet mode, at `where` from `source`: token | routes << 32, then the routes, then (after 1 + k packets) the data.
  FARWARP_DEVICE Peer<Packet> packet_row(int where, int source, std::int64_t slot) const {
    return at<Packet>(where, args.offsets.rows) + (pair(source) * args.max_tokens + slot) * row_packets();
  }
  /// Packet mode, at the source `where`: the partial sums of `owner` for `token`.
  FARWARP_DEVICE Peer<Packet> packet_return(int where, std::int64_t token, int owner) const {
    return at<Packet>(where, args.offsets.returns) +
           ((static_cast<std::int64_t>(parity) * args.max_tokens + token) * ranks() + owner) * data_packets();
  }
  /// Bulk mode, at `where` from `source`: 1 + k words as in packet_row.
  FARWARP_DEVICE Peer<std::uint64_t> bulk_routes(int where, int source, std::int64_t slot) const {
    return at<std::uint64_t>(where, args.offsets.routes) + (pair(source) * args.max_tokens + slot) * (1 + args.k);
  }
  FARWARP_DEVICE Peer<Vec16> bulk_row(int where, int source, std::int64_t slot) const {
    return at<Vec16>(where, args.offsets.rows) + (pair(source) * args.max_tokens + slot) * row_vectors();
  }
  FARWARP_DEVICE Peer<Vec16> bulk_return(int where, std::int64_t token, int owner) const {
    return at<Vec16>(where, args.offsets.returns) +
           ((static_cast<std::int64_t>(parity) * args.max_tokens + token) * ranks() + owner) * row_vectors();
  }
  /// Bulk mode, at `where`: chunk `chunk` of `source` has landed: first slot << 16 | rows.
  FARWARP_DEVICE Peer<SystemCell<std::uint64_t>> chunk_flag(int where, int source, int chunk) const {
    return at<SystemCell<std::uint64_t>>(where, args.offsets.chunk_flags) + pair(source) * num_blocks() + chunk;
  }
  /// Bulk mode, at the source `where`: `owner` has returned chunk `chunk`.
  FARWARP_DEVICE Peer<SystemCell<std::uint64_t>> return_flag(int where, int owner, int chunk) const {
    return at<SystemCell<std::uint64_t>>(where, args.offsets.return_flags) + pair(owner) * num_blocks() + chunk;
  }
  /// Split form, mine: first row of (source, local expert), from dispatch_recv to combine_send.
  FARWARP_DEVICE Global<std::int32_t> saved_bases() const {
    return own_address<std::int32_t>(args.view, args.workspace + args.offsets.bases);
  }

 private:
  template <class T>
  FARWARP_DEVICE Peer<T> at(int rank, std::int64_t offset) const {
    return peer_address<T>(args.view, rank, args.workspace + offset);
  }
  FARWARP_DEVICE std::int64_t pair(int rank) const { return static_cast<std::int64_t>(parity) * ranks() + rank; }
};

FARWARP_DEVICE Regions regions_of(const Args& args, const Call& call) {
  return {args, static_cast<int>(call.epoch & 1)};
}

/// My own part of what peers write to, for reading.
template <class T>
FARWARP_DEVICE Global<T> mine(Peer<T> address) {
  return Global<T>(address.raw);
}

template <class T>
FARWARP_DEVICE Shared<T> shared_at(std::int64_t offset) {
  return Shared<T>(reinterpret_cast<T*>(block_shared().raw + offset));
}

/// This warp's scratch for one row's routes.
FARWARP_DEVICE Shared<Route> scratch_of(const Args& args) {
  return shared_at<Route>(args.shared.scratch) + warp_index() * farwarp::moe::kMaxTopK;
}

FARWARP_DEVICE int warps_per_block() { return num_threads() / Target::kWarpSize; }

}  // namespace farwarp::FARWARP_TARGET::moe
