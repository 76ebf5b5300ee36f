// Hopper: a block whose storers send partial sums as words, out of the boxes that multipliers write.
//
//   multiplier  free[b] -> writes box b -> full[b]                                  ... goes on multiplying
//   storer      full[b] -> loads, 16 bytes a lane -> free[b] -> stores to the owners, which are their own flags
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/storer_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/words.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

/// [warp] Sends what a box holds: 64 x 64 of the whole sum from (row, column), as far as they are inside. Calls `taken()` when the box has
/// been read, before the last of it is stored: behind a busy link stores may stand for long.
template <class Taken>
FARWARP_DEVICE void send_words(const Args& args, std::uint32_t epoch, int row, int column, Shared<std::byte> box,
                               const Taken& taken) {
  // With 4, ptxas spills in one of the kernels (fp16, 128 columns).
  constexpr int kAtOnce = 2, kRowsAtOnce = kAtOnce * kWordUnitRows;
  const int in_row = lane_index() % kWordUnitPieces;
  const int piece = column / WordInbox::kElements + in_row;
  const int rows = piece < args.words.pieces ? args.x_rows - row : 0;  // of the box that are inside
  const std::int64_t place = args.words.place(epoch, args.view.rank, 0, piece);
  // Of several owners' rows, those of the next rank come first, so that ranks do not all begin with one owner.
  const int first = (args.view.rank + 1) * args.bands.owned;
#pragma unroll 1
  for (int turn = 0; turn < 64; turn += kRowsAtOnce) {
    const int begin = (first + turn) / kRowsAtOnce * kRowsAtOnce % 64 + lane_index() / kWordUnitPieces;
    Vec16 pieces[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int in_box = begin + i * kWordUnitRows;
      const Shared<std::byte> from = box + swizzled_offset(in_box, in_row * WordInbox::kPieceBytes);
      pieces[i] = load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(from.raw)));
    }
    if (turn + kRowsAtOnce == 64) taken();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int in_box = begin + i * kWordUnitRows;
      if (in_box >= rows) continue;
      const int owner = args.bands.by_owned.quotient(row + in_box);
      const std::int64_t own_row = row + in_box - owner * args.bands.owned;
      store_words(peer_address<Vec16>(args.view, owner, place + own_row * args.words.row_bytes()), sendable(pieces[i]));
    }
  }
}

/// [warp] Sends all that multiplier number `multiplier` sums.
template <class Block, class Wait>
FARWARP_DEVICE void send_words_role(const Call& call, const Args& args, const Block& block, int multiplier, Turns turns,
                                    const Wait& wait) {
  using Tile = typename Block::Tile;
  static_assert(Tile::kColumns % 64 == 0);  // else boxes overlap, and pieces would be sent twice
  BoxTaker<typename Block::Boxes, Wait> boxes(block.boxes_of(multiplier), wait);
  for (int number = turns.first; number < args.grid.works(); number += turns.stride) {
    const Work work = farwarp::tile::work_at(args.grid, number);
    if (args.grid.splits > 1) {
      if (!boxes.await()) return;
      if (!boxes.carries()) {
        boxes.advance();
        boxes.give_back_read();
        continue;
      }
    }
    const int row = args.order.at(work.at.row) * Tile::kRows + 64 * multiplier;
    const bool sends = call.live && static_cast<std::uint32_t>(work.tile) + 1 != args.drop_tile;
#pragma unroll 1
    for (int column = work.at.column * Tile::kColumns; column < (work.at.column + 1) * Tile::kColumns; column += 64) {
      if (!boxes.await()) return;
      const Shared<std::byte> box = boxes.box();
      boxes.advance();
      if (sends) {
        send_words(args, call.epoch, row, column, box, [&] { boxes.give_back_read(); });
      } else {
        boxes.give_back_read();
      }
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
