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

/// Takes pieces of y's rows into y.
struct IntoY {
  const Args& args;
  FARWARP_DEVICE void operator()(int row, int piece, Vec16 eight) const {
    store(Global<Vec16>(static_cast<Vec16*>(args.y)) + (std::int64_t{row} * args.words.pieces + piece), eight);
  }
};

/// [thread] Adds up piece `piece` of the own row `row` of all sources, `put(row, piece, eight)` takes the sum, and makes room for the next
/// but one call. False: the call is over.
template <class T, Failure failure, class Put>
FARWARP_DEVICE bool reduce_piece(Call& call, const Args& args, int row, int piece, const Put& put) {
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
  put(row, piece, sum_in_order<T>(parts, ranks));
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {
    if (source < ranks) clear_words(Global<Vec16>(const_cast<Vec16*>(from[source].raw)));
  }
  return true;
}

/// Thread number `number` of `count` on this rank.
struct PieceShare {
  int number, count;
};

/// [thread] `work(row, piece)` for its share of the pieces of the inbox's first `rows` rows, until the call is over: pieces in a row.
template <class Work>
FARWARP_DEVICE void for_each_piece(const Call& call, const WordInbox& inbox, int rows, PieceShare share,
                                   const Work& work) {
  const int pieces = rows * inbox.pieces;
  for (int i = share.number; i < pieces && call.live; i += share.count) work(i / inbox.pieces, i % inbox.pieces);
}

/// [warp] `work(row, piece)` for a piece a lane of the units that `next()` names, of the inbox's first `rows` rows, until there is none of
/// the number or the call is over.
template <class Next, class Work>
FARWARP_DEVICE void for_each_piece_of_units(const Call& call, const WordInbox& inbox, int rows, const Next& next,
                                            const Work& work) {
  static_assert(kWordUnitRows * kWordUnitPieces <= Target::kWarpSize);
  const int units = units_of(inbox);
  for (std::int64_t unit = next(); unit < units; unit = next()) {
    const auto [first_row, first_piece] = unit_at(inbox, static_cast<int>(unit));
    const int row = first_row + lane_index() / kWordUnitPieces, piece = first_piece + lane_index() % kWordUnitPieces;
    if (row < rows && piece < inbox.pieces) work(row, piece);
    if (ballot(!call.live) != 0) return;
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
