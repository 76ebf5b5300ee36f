// Words mode: rows and partial sums cross the link as nothing but themselves, 16 bytes at a time that say by their value that they have
// come (world/device/words.dev.h). No flag, no fence, no barrier stands between a store and its reader, and all bytes are payload. Who
// reads words clears them: each is read once.
#pragma once

#include "farwarp/ops/moe_a2a/arrivals.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

struct WordWire {
  using Encoding = AsTheyAre;
  using Unit = Vec16;
  using Piece = Vec16;
  using Landed = Vec16;
  FARWARP_DEVICE static Piece piece_of(const Landed& landed) { return landed; }
  static constexpr int kAlign = 1;
  // Units that a lane has in flight, of a row and of each owner's sum. With two in reduce_row() combine of 256 tokens x 7168 takes 36 us for
  // 30, of 32 x 2048 as long (2 H200s, 2026-11).
  static constexpr bool kLoadsAhead = true;  // a piece is soon in registers
  static constexpr int kAhead = 4, kUnpackAhead = 4, kReduceAhead = 4, kReturnsAhead = 1;
  static constexpr int kAppliedTogether = 2;

  Call& call;
  const Args& args;
  Regions regions;

  FARWARP_DEVICE WordWire(Call& a_call, const Args& a) : call(a_call), args(a), regions(regions_of(a, a_call)) {}

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
    const auto address = reinterpret_cast<std::uint64_t>(regions.row<Vec16>(peer, args.view.rank, place).raw);
    const auto wanted = ranks & ~static_cast<std::uint32_t>(ballot(slot + 1 == args.drop_put));
#pragma unroll 1
    for (int base = piece.first; base < piece.last; base += kAhead * kStride) {
      const int u = base + lane_index();
      if (base != piece.first) load_units(args, piece, u, values);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) values[a] = sendable(values[a]);
      for_each_rank(args, wanted, [&](int rank) {
        const Peer<Vec16> row = Peer<Vec16>(reinterpret_cast<Vec16*>(shuffle(address, rank))) + u;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (u + a * kStride < piece.last) store_words(row + a * kStride, values[a]);
        }
      });
    }
  }

  /// [warp] Returns are awaited word by word; a lane that has given up ends it for the warp.
  FARWARP_DEVICE bool await_returns(int, int, std::uint32_t) {
    if (ballot(!call.live) != 0) call.live = false;
    return call.live;
  }

  /// [thread] Unit `u` of every owner's sum; all in flight before one is looked at.
  FARWARP_DEVICE bool read_returns(int token, std::uint32_t ranks, int u, Unit (&parts)[kMaxRanks]) {
    const Global<const Vec16> first =
        words_of(regions.returned<Vec16>(args.view.rank, token, 0)) + u;  // owners are neighbours
    Global<const Vec16> from[kMaxRanks];
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) from[r] = first + r * regions.row_length<Vec16>();
    if (!wait_words<1>(call, from, ranks, parts, Wait{farwarp::moe::kSiteReturn, -1, 1})) return false;
    clear_words(from, ranks);
    return true;
  }

  // ---- owner -----------------------------------------------------------------------------------------------------------

  /// [warp] Data is awaited word by word.
  FARWARP_DEVICE bool await_data(const Row&) { return call.live; }

  /// [thread] Units u, u + kStride, ... of the row, as far as they belong to the piece.
  template <int count>
  FARWARP_DEVICE bool read(const Row& row, int u, Piece (&x)[count]) {
    std::uint64_t no_head = 0;
    return read_row(row, u, x, false, no_head);
  }

  /// [thread] The same; `with_head`: and on lane j the head's word of k-slot j, while they are on their way.
  template <int count>
  FARWARP_DEVICE bool read_row(const Row& row, int u, Landed (&x)[count], bool with_head, std::uint64_t& head) {
    const Global<const Vec16> words = words_of(regions.row<Vec16>(args.view.rank, row.source, row.slot)) + u;
    Global<const Vec16> from[count];
    std::uint32_t wanted = 0;
#pragma unroll
    for (int a = 0; a < count; ++a) {
      from[a] = words + a * kStride;
      if (u + a * kStride < row.last) wanted |= 1u << a;
    }
    request_words(from, wanted, x);
    const Wait wait{farwarp::moe::kSiteRow, row.source};
    if (with_head && lane_index() < args.k) {
      const Global<Packet> packet[] = {mine(regions.head(args.view.rank, row.source, row.slot)) + lane_index()};
      std::uint64_t data[1] = {head};
      wait_packets<1>(call, packet, 1, data, wait);
      head = data[0];
    }
    if (!wait_requested_words<1>(call, from, wanted, x, wait)) return false;
    clear_words(from, wanted);
    return true;
  }

  FARWARP_DEVICE void write_return(const Row& row, int u, Unit sum) {
    store_words(regions.returned<Vec16>(row.source, row.token, args.view.rank) + u, sendable(sum));
  }

  /// [warp] The words say it themselves.
  FARWARP_DEVICE void finish_return(const Row&) {}

  // ---- what this call leaves idle -----------------------------------------------------------------------------------------

  FARWARP_DEVICE void retag_row(int, int) {}  // words carry no tag
  FARWARP_DEVICE void retag_return(int, int) {}

 private:
  FARWARP_DEVICE static Global<const Vec16> words_of(Peer<Vec16> address) { return Global<const Vec16>(address.raw); }

  /// [thread] Units u, u + kStride, ... of the token's x, as far as they belong to the piece.
  FARWARP_DEVICE static void load_units(const Args& args, const Segment& piece, int u, Unit (&values)[kAhead]) {
    const Global<const Unit> x = Global<const Unit>(static_cast<const Unit*>(args.x)) +
                                 (static_cast<std::int64_t>(piece.token) * (args.hidden / kPer<Unit>)+u);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      values[a] = u + a * kStride < piece.last ? load<Cache::streaming>(x + a * kStride) : Unit{};
    }
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
