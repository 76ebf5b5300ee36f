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

  FARWARP_DEVICE Segment segment_of(int token, int number) const {
    const int units = args.hidden / kPer<Unit>;
    return {token, number, segment_start<kAlign>(args, units, number), segment_start<kAlign>(args, units, number + 1)};
  }

  /// [warp] A piece to every rank of `destinations()`, which is asked once the piece's first units are on their way here.
  template <class DestinationsOf>
  FARWARP_DEVICE void send_piece(const Segment& piece, const DestinationsOf& destinations) {
    Unit values[kAhead];
    load_units(piece, piece.first + lane_index(), values);
    const Destinations to = destinations();
#pragma unroll 1
    for (int base = piece.first; base < piece.last; base += kAhead * kStride) {
      const int u = base + lane_index();
      if (base != piece.first) load_units(piece, u, values);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) values[a] = Encoding::packed(values[a]);
      for_each_rank(args, to.ranks, [&](int rank) {
        const std::uint32_t slot = shuffle(to.slot, rank);
        if (slot + 1 == args.drop_put) return;
        const Peer<Packet> row = regions.row<Packet>(rank, args.view.rank, slot) + u;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (u + a * kStride < piece.last) store_packet(row + a * kStride, values[a], call.epoch);
        }
      });
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
    std::uint64_t ignored = 0;
    return read_row(row, u, x, false, ignored);
  }

  /// [thread] The same; `with_head`: and on lane j the head's word of k-slot j, in the same round of polls.
  FARWARP_DEVICE bool read_row(const Row& row, int u, Piece (&x)[kAhead], bool with_head, std::uint64_t& head) {
    const Global<Packet> packets = mine(regions.row<Packet>(args.view.rank, row.source, row.slot)) + u;
    Global<Packet> from[kAhead + 1];
    std::uint64_t data[kAhead + 1] = {};
    data[kAhead] = head;
    from[kAhead] = mine(regions.head(args.view.rank, row.source, row.slot)) + lane_index();
    std::uint32_t wanted = with_head && lane_index() < args.k ? 1u << kAhead : 0;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      from[a] = packets + a * kStride;
      if (u + a * kStride < row.last) wanted |= 1u << a;
    }
    const bool arrived = wait_packets<1>(call, from, wanted, data, Wait{farwarp::moe::kSiteRow, row.source});
#pragma unroll
    for (int a = 0; a < kAhead; ++a) x[a] = Encoding::unpacked(data[a]);
    head = data[kAhead];
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

 private:
  /// [thread] Units u, u + kStride, ... of the token's x, as far as they belong to the piece.
  FARWARP_DEVICE void load_units(const Segment& piece, int u, Unit (&values)[kAhead]) const {
    const Global<const Unit> x = Global<const Unit>(static_cast<const Unit*>(args.x)) +
                                 (static_cast<std::int64_t>(piece.token) * (args.hidden / kPer<Unit>)+u);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      values[a] = u + a * kStride < piece.last ? load<Cache::streaming>(x + a * kStride) : 0;
    }
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
