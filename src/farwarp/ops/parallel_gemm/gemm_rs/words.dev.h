// Partial sums as words: pieces of eight neighbours of a row, which say themselves whether they have come, so nothing is told or fenced.
// Whoever adds a piece up is the only one that reads it, and leaves all ones behind.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/reduce.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::gemm_rs::kWordUnitPieces;
using farwarp::gemm_rs::kWordUnitRows;
using farwarp::gemm_rs::WordInbox;

static_assert(sizeof(Vec16) == WordInbox::kPieceBytes);

/// [thread] Sends eight sums of `row` of `rank`'s inbox.
FARWARP_DEVICE void send_piece(const Call& call, const WordInbox& inbox, int rank, int row, int piece, Vec16 eight) {
  const std::int64_t place = inbox.place(call.epoch, call.view.rank, row, piece);
  store_words(peer_address<Vec16>(call.view, rank, place), sendable(eight));
}

/// [thread] Adds up piece `piece` of the own row `row` of all sources into y, whose rows are the inbox's, and makes room for the
/// next but one call. False: the call is over.
template <class T, Failure failure>
FARWARP_DEVICE bool reduce_piece(Call& call, const Args& args, int row, int piece) {
  const WordInbox& inbox = args.words;
  const int ranks = args.view.size;
  Global<const Vec16> from[kMaxRanks];
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source)
    from[source] =
        own_address<const Vec16>(args.view, inbox.place(call.epoch, source < ranks ? source : 0, row, piece));
  Vec16 parts[kMaxRanks] = {};
  const Wait wait{farwarp::gemm_rs::kSitePartials, -1};
  if (!wait_words<1, failure>(call, from, (1u << ranks) - 1, parts, wait)) return false;
  const std::int64_t place = (std::int64_t{row} * inbox.pieces + piece) * WordInbox::kElements;
  store(Global<Vec16>(reinterpret_cast<Vec16*>(static_cast<T*>(args.y) + place)), sum_in_order<T>(parts, ranks));
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {
    if (source < ranks) clear_words(Global<Vec16>(const_cast<Vec16*>(from[source].raw)));
  }
  return true;
}

/// [thread] Adds up this rank's rows: thread number `number` of `count` on this rank, pieces in a row.
template <class T, Failure failure>
FARWARP_DEVICE void reduce_pieces(Call& call, const Args& args, int number, int count) {
  const int pieces = args.words.rows * args.words.pieces;
  for (int i = number; i < pieces && call.live; i += count)
    reduce_piece<T, failure>(call, args, i / args.words.pieces, i % args.words.pieces);
}

/// [warp] Adds up the units that `next()` names, until there is none of the number or the call is over: a piece a lane.
template <class T, Failure failure, class Next>
FARWARP_DEVICE void reduce_word_units(Call& call, const Args& args, const Next& next) {
  static_assert(kWordUnitRows * kWordUnitPieces <= Target::kWarpSize);
  const int units = units_of(args.words);
  for (std::int64_t unit = next(); unit < units; unit = next()) {
    const auto [first_row, first_piece] = unit_at(args.words, static_cast<int>(unit));
    const int row = first_row + lane_index() / kWordUnitPieces, piece = first_piece + lane_index() % kWordUnitPieces;
    if (row < args.words.rows && piece < args.words.pieces) reduce_piece<T, failure>(call, args, row, piece);
    if (ballot(!call.live) != 0) return;
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
