// Packet mode: rows and partial sums cross the link as packets that carry their own tag. No flag, no fence, no barrier stands
// between a store and its reader; each warp works on its own. For small batches: the payload is half of what is sent.
#pragma once

#include "farwarp/ops/moe_a2a/arrivals.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

template <class RowEncoding>
struct PacketWire {
  using Encoding = RowEncoding;
  using Unit = std::uint64_t;  // the data of one packet: neighbouring lanes fill neighbouring packets
  using Piece = typename Encoding::template Piece<Unit>;
  static constexpr int kAlign = Encoding::kFp8 ? kScaleGroup / kPer<Unit> : 1;
  // Units that a lane has in flight, of a row and of each owner's sum. Pieces are small in this mode; more is only more code.
  static constexpr int kAhead = 2, kUnpackAhead = kAhead, kReturnsAhead = 1;

  Call& call;
  const Args& args;
  Regions regions;

  FARWARP_DEVICE PacketWire(Call& a_call, const Args& a) : call(a_call), args(a), regions(regions_of(a, a_call)) {}

  // ---- source ----------------------------------------------------------------------------------------------------------

  /// [warp] One segment of a token to every rank of `ranks`, beginning behind mine. `slot`: on lane r, its place at rank r.
  FARWARP_DEVICE void send_piece(int token, int segment, std::uint32_t ranks, std::uint32_t slot) {
    Peer<Packet> to[kMaxRanks];  // unrolled loops only, so that they stay in registers
    std::uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < kMaxRanks; ++i) {
      if (i >= args.view.size) continue;
      const int rank = rank_behind(args, 1 + i);
      const std::uint32_t place = shuffle(slot, rank);
      if (!(ranks >> rank & 1) || place + 1 == args.drop_put) continue;
      wanted |= 1u << i;
      to[i] = regions.row<Packet>(rank, args.view.rank, place);
    }
    const int units = args.hidden / kPer<Unit>;
    const Global<const Unit> x =
        Global<const Unit>(static_cast<const Unit*>(args.x)) + static_cast<std::int64_t>(token) * units;
    const int last = segment_start<kAlign>(args, units, segment + 1);
#pragma unroll 1
    for (int base = segment_start<kAlign>(args, units, segment); base < last; base += kAhead * kStride) {
      const int u = base + lane_index();
      Unit values[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        values[a] = u + a * kStride < last ? load<Cache::streaming>(x + (u + a * kStride)) : 0;
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) values[a] = Encoding::packed(values[a]);
#pragma unroll
      for (int i = 0; i < kMaxRanks; ++i) {
        if (!(wanted >> i & 1)) continue;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (u + a * kStride < last) store_packet(to[i] + (u + a * kStride), values[a], call.epoch);
        }
      }
    }
  }

  /// [warp] Returns are awaited packet by packet.
  FARWARP_DEVICE bool await_returns(int, int, std::uint32_t) { return call.live; }

  /// [thread] Unit `u` of every owner's sum; all packets in flight before one is tested.
  FARWARP_DEVICE bool read_returns(int token, std::uint32_t ranks, int u, Unit (&parts)[kMaxRanks]) {
    Global<Packet> from[kMaxRanks];
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) {
      if (ranks >> r & 1) from[r] = mine(regions.returned<Packet>(args.view.rank, token, r)) + u;
    }
    return wait_packets<1>(call, from, ranks, parts, Wait{farwarp::moe::kSiteReturn, -1, 1});
  }

  // ---- owner -----------------------------------------------------------------------------------------------------------

  /// [warp] Data is awaited packet by packet.
  FARWARP_DEVICE bool await_data(const Row&) { return call.live; }

  /// [thread] Units u, u + kStride, ... of the row, as far as they belong to the piece.
  FARWARP_DEVICE bool read(const Row& row, int u, Piece (&x)[kAhead]) {
    const Global<Packet> packets = mine(regions.row<Packet>(args.view.rank, row.source, row.slot)) + u;
    Global<Packet> from[kAhead];
    std::uint64_t data[kAhead] = {};
    std::uint32_t wanted = 0;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      from[a] = packets + a * kStride;
      if (u + a * kStride < row.last) wanted |= 1u << a;
    }
    const bool arrived = wait_packets<1>(call, from, wanted, data, Wait{farwarp::moe::kSiteRow, row.source});
#pragma unroll
    for (int a = 0; a < kAhead; ++a) x[a] = Encoding::unpacked(data[a]);
    return arrived;
  }

  FARWARP_DEVICE void write_return(const Row& row, int u, Unit sum) {
    store_packet(regions.returned<Packet>(row.source, row.token, args.view.rank) + u, sum, call.epoch);
  }

  /// [warp] The packets say it themselves.
  FARWARP_DEVICE void finish_return(const Row&) {}

  // ---- tags of what this call leaves idle --------------------------------------------------------------------------------

  FARWARP_DEVICE void retag_row(int source, std::uint32_t slot) {
    retag(call, regions.row<Packet>(args.view.rank, source, slot), regions.row_length<Packet>());
  }
  FARWARP_DEVICE void retag_return(std::uint32_t token, int owner) {
    retag(call, regions.returned<Packet>(args.view.rank, token, owner), regions.row_length<Packet>());
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
