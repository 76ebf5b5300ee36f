// Words mode: rows cross the link as nothing but themselves, in words that say by their value that they have come
// (world/device/words.dev.h). No flag, no fence, no barrier stands between a store and its reader, and all bytes are payload. Who
// reads words clears them: each is read once.
#pragma once

#include "farwarp/ops/moe_a2a/pieces.dev.h"
#include "farwarp/ops/moe_a2a/row_as_words.dev.h"
#include "farwarp/ops/moe_a2a/table.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

template <class RowEncoding>
struct WordWire {
  using Encoding = RowEncoding;
  using Dispatched = typename Encoding::Dispatched;
  using Words = RowAsWords<Encoding>;
  static constexpr int kAlign = Words::kAlign;
  static constexpr bool kLoadsAhead = true;  // a piece is soon in registers
  static constexpr int kAhead = 4;           // units of a row that a lane has in flight
  static constexpr int kUnpackAhead = kAhead;
  static constexpr int kAppliedTogether = 2;

  Call& call;
  const Args& args;
  Regions regions;

  FARWARP_DEVICE WordWire(Call& a_call, const Args& a) : call(a_call), args(a), regions(regions_of(a, a_call)) {}

  // ---- source ----------------------------------------------------------------------------------------------------------

  /// [warp] A piece's first units, on their way to its lanes. Nothing of a call is needed for that.
  struct Ahead {
    Unit values[kAhead];
    FARWARP_DEVICE Ahead(const Args& args, const Segment& piece) {
      load_units(args, piece, piece.first + lane_index(), values);
    }
  };

  /// [warp] A piece to every rank of `ranks`, beginning behind mine.
  FARWARP_DEVICE void send_piece(const Segment& piece, const Ahead& ahead, std::uint32_t ranks) {
    Unit values[kAhead];
    typename Words::Sent words[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) values[a] = ahead.values[a];
    // Lane r has rank r's address, and all of them what goes there.
    const int peer = lane_index() < args.view.size ? lane_index() : args.view.rank;
    const auto address = reinterpret_cast<std::uint64_t>(regions.row(peer, args.view.rank, piece.token).raw);
    const std::uint32_t wanted = dropped(args, piece.token) ? 0 : ranks;
#pragma unroll 1
    for (int base = piece.first; base < piece.last; base += kAhead * kStride) {
      const int u = base + lane_index();
      if (base != piece.first) load_units(args, piece, u, values);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) words[a] = Words::made_of(values[a]);
      for_each_rank(args, wanted, [&](int rank) {
        const Peer<std::byte> row(reinterpret_cast<std::byte*>(shuffle(address, rank)));
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (u + a * kStride < piece.last) Words::send(args, row, u + a * kStride, words[a]);
        }
      });
    }
  }

  // ---- owner -----------------------------------------------------------------------------------------------------------

  /// [warp] Units u, u + kStride, ... of the row, as far as they belong to the piece; `with_head`: and on lane j the head's word of k-slot
  /// j, while they are on their way. False on lanes that have not got theirs: the call is over.
  template <int count>
  FARWARP_DEVICE bool read_row(const Row& row, int u, Dispatched (&x)[count], bool with_head, std::uint64_t& head) {
    typename Words::template Arriving<count> arriving(args, mine(regions.row(args.view.rank, row.source, row.token)), u,
                                                      row.last);
    request_words(arriving.from, arriving.wanted, arriving.words);
    const Wait wait{farwarp::moe::kSiteRow, row.source};
    if (with_head && lane_index() < args.k) {
      const Global<Packet> packet[] = {mine(regions.head(args.view.rank, row.source, row.token)) + lane_index()};
      std::uint64_t data[1] = {head};
      wait_packets<1>(call, packet, 1, data, wait);
      head = data[0];
    }
    const bool arrived = wait_requested_words<1>(call, arriving.from, arriving.wanted, arriving.words, wait);
    if (arrived) clear_words(arriving.from, arriving.wanted);
    arriving.give(x);
    return arrived;
  }

  FARWARP_DEVICE void retag_row(int, int) {}  // words carry no tag

 private:
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
