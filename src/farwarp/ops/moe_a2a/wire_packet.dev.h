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
  using Landed = Unit;  // what read_row() gives; still packed, which takes fewer registers
  FARWARP_DEVICE static Piece piece_of(Landed landed) { return Encoding::unpacked(landed); }
  static constexpr int kAlign = Encoding::kFp8 ? kScaleGroup / kPer<Unit> : 1;
  // Units that a lane has in flight, of a row and of each owner's sum. The plan's pieces have at most so many up to rows of 8192: one
  // round of polls is all. More is only more code, which is why the experts go through them in few copies.
  static constexpr bool kLoadsAhead = true;  // a piece is soon in registers
  static constexpr int kAhead = 4, kUnpackAhead = 2, kReduceAhead = 2, kReturnsAhead = 1;
  static constexpr int kAppliedTogether = Encoding::kFp8 ? 2 : 1;  // one by one clang spills with scales

  Call& call;
  const Args& args;
  Regions regions;

  FARWARP_DEVICE PacketWire(Call& a_call, const Args& a) : call(a_call), args(a), regions(regions_of(a, a_call)) {}

  // ---- source ----------------------------------------------------------------------------------------------------------

  FARWARP_DEVICE static Segment segment_of(const Args& args, int token, int number) {
    const int units = args.hidden / kPer<Unit>;
    return {token, number, segment_start<kAlign>(args, units, number), segment_start<kAlign>(args, units, number + 1)};
  }

  /// [warp] A piece's first units, on their way to its lanes. Nothing of a call is needed for that.
  struct Ahead {
    Unit values[kAhead];
    FARWARP_DEVICE Ahead(const Args& args, const Segment& piece) {
      load_units(args, piece, piece.first + lane_index(), values);
    }
  };

  /// [warp] A piece to every rank of `ranks`, beginning behind mine. `slot`: on lane r, its place at rank r.
  FARWARP_DEVICE void send_piece(const Segment& piece, const Ahead& ahead, std::uint32_t ranks, std::uint32_t slot) {
    Unit values[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) values[a] = ahead.values[a];
    // Lane r has rank r's address, and all of them what goes there.
    const auto place = static_cast<std::int32_t>(slot);
    const int peer = lane_index() < args.view.size ? lane_index() : args.view.rank;
    const auto address = reinterpret_cast<std::uint64_t>(regions.row<Packet>(peer, args.view.rank, place).raw);
    const auto wanted = ranks & ~static_cast<std::uint32_t>(ballot(slot + 1 == args.drop_put));
#pragma unroll 1
    for (int base = piece.first; base < piece.last; base += kAhead * kStride) {
      const int u = base + lane_index();
      if (base != piece.first) load_units(args, piece, u, values);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) values[a] = Encoding::packed(values[a]);
      for_each_rank(args, wanted, [&](int rank) {
        const Peer<Packet> row = Peer<Packet>(reinterpret_cast<Packet*>(shuffle(address, rank))) + u;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (u + a * kStride < piece.last) store_packet(row + a * kStride, values[a], call.epoch);
        }
      });
    }
  }

  /// [warp] Returns are awaited packet by packet; a lane that has given up ends it for the warp.
  FARWARP_DEVICE bool await_returns(int, int, std::uint32_t) {
    if (ballot(!call.live) != 0) call.live = false;
    return call.live;
  }

  /// [thread] Unit `u` of every owner's sum; all packets in flight before one is tested.
  FARWARP_DEVICE bool read_returns(int token, std::uint32_t ranks, int u, Unit (&parts)[kMaxRanks]) {
    const Global<Packet> first = mine(regions.returned<Packet>(args.view.rank, token, 0)) + u;  // owners are neighbours
    Global<Packet> from[kMaxRanks];
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) from[r] = first + r * regions.row_length<Packet>();
    return wait_packets<1>(call, from, ranks, parts, Wait{farwarp::moe::kSiteReturn, -1, 1});
  }

  // ---- owner -----------------------------------------------------------------------------------------------------------

  /// [warp] Data is awaited packet by packet.
  FARWARP_DEVICE bool await_data(const Row&) { return call.live; }

  /// [thread] Units u, u + kStride, ... of the row, as far as they belong to the piece.
  template <int count>
  FARWARP_DEVICE bool read(const Row& row, int u, Piece (&x)[count]) {
    std::uint64_t no_head = 0;
    Landed landed[count];
    const bool arrived = read_row(row, u, landed, false, no_head);
#pragma unroll
    for (int a = 0; a < count; ++a) x[a] = piece_of(landed[a]);
    return arrived;
  }

  /// [thread] The same; `with_head`: and on lane j the head's word of k-slot j, in the same round of polls.
  template <int count>
  FARWARP_DEVICE bool read_row(const Row& row, int u, Landed (&x)[count], bool with_head, std::uint64_t& head) {
    const Global<Packet> packets = mine(regions.row<Packet>(args.view.rank, row.source, row.slot)) + u;
    Global<Packet> from[count + 1];
    std::uint64_t data[count + 1] = {};
    data[count] = head;
    from[count] = mine(regions.head(args.view.rank, row.source, row.slot)) + lane_index();
    std::uint32_t wanted = with_head && lane_index() < args.k ? 1u << count : 0;
#pragma unroll
    for (int a = 0; a < count; ++a) {
      from[a] = packets + a * kStride;
      if (u + a * kStride < row.last) wanted |= 1u << a;
    }
    const bool arrived = wait_packets<1>(call, from, wanted, data, Wait{farwarp::moe::kSiteRow, row.source});
#pragma unroll
    for (int a = 0; a < count; ++a) x[a] = data[a];
    head = data[count];
    return arrived;
  }

  FARWARP_DEVICE void write_return(const Row& row, int u, Unit sum) {
    store_packet(regions.returned<Packet>(row.source, row.token, args.view.rank) + u, sum, call.epoch);
  }

  /// [warp] The packets say it themselves.
  FARWARP_DEVICE void finish_return(const Row&) {}

  // ---- tags of what this call leaves idle --------------------------------------------------------------------------------

  FARWARP_DEVICE void retag_row(int source, int slot) {
    retag(call, regions.row<Packet>(args.view.rank, source, slot), regions.row_length<Packet>());
  }
  FARWARP_DEVICE void retag_return(int token, int owner) {
    retag(call, regions.returned<Packet>(args.view.rank, token, owner), regions.row_length<Packet>());
  }

 private:
  /// [thread] Units u, u + kStride, ... of the token's x, as far as they belong to the piece.
  FARWARP_DEVICE static void load_units(const Args& args, const Segment& piece, int u, Unit (&values)[kAhead]) {
    const Global<const Unit> x = Global<const Unit>(static_cast<const Unit*>(args.x)) +
                                 (static_cast<std::int64_t>(piece.token) * (args.hidden / kPer<Unit>)+u);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      values[a] = u + a * kStride < piece.last ? load<Cache::streaming>(x + a * kStride) : 0;
    }
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
