// Hopper: a block for few rows of x, whose partial sums leave as words. Those who sum write them; where K is split, the blocks of a
// cluster first add up what they have summed.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/block_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/words.dev.h"
#include "farwarp/tile/gemm/finisher_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::tile::TileIndex;
using farwarp::tile::Turns;
using farwarp::tile::Work;

/// The roles of a block (run_block()) with tiles of 128 rows of w by `columns` rows of x. `Route::send(call, args, row, piece, eight)`
/// sends eight sums of a row of the whole sum to whom it may concern. Storers and the keeper have nothing to do.
template <class T, int columns, class Route>
struct FewByWords {
  using Block = SendingBlock<T, columns>;
  using Tile = typename Block::Tile;
  static constexpr bool kByWords = true, kClusters = true;
  static constexpr RegisterShares kRegisters{88, 208};

  const Args& args;

  template <class Wait>
  FARWARP_DEVICE void store(const Block&, int, Turns, const Wait&) const {}
  template <class Wait>
  FARWARP_DEVICE void reduce(const Block&, const Wait&) const {}

  template <class Wait>
  FARWARP_DEVICE void multiply(const Block& block, int multiplier, Turns turns, const Wait& wait) const {
    const auto carry = [&](int row, int column, Shared<std::byte> box) {
      const Call call = block.call(args.view, args.slot, wait);  // there long since
      if (call.live && !is_dropped(row, column)) send_box(call, row, column, box);
    };
    const Global<const T> bias(static_cast<const T*>(args.bias));
    const tile::Finisher<Block, true, decltype(carry)> finisher{
        block, multiplier, args.grid.splits, bias, args.n, carry, {block.boxes(multiplier), 1 + multiplier}};
    const auto origin = [](const Work& work) {
      return TileIndex{work.at.row * Tile::kRows, work.at.column * Tile::kColumns};
    };
    tile::multiply_and_finish(block, args.grid, turns, finisher, origin, wait);
  }

  template <class Wait>
  FARWARP_DEVICE void collect(const Block& block, const Wait& wait) const {
    Call call = block.call(args.view, args.slot, wait);
    for_each_piece(call, args.words, args.words.rows, share(), [&](int row, int piece) {
      reduce_piece<T, Failure::in_place>(call, args, row, piece, IntoY{args});
    });
  }

 protected:
  /// Of a multiplier's thread. Warp after warp of every block: few pieces are many blocks' work all the same.
  FARWARP_DEVICE static PieceShare share() {
    const int warp = (warp_index() - 4) * num_blocks() + block_index(), warps = 4 * Tile::kMultipliers * num_blocks();
    return {warp * Target::kWarpSize + lane_index(), warps * Target::kWarpSize};
  }

 private:
  FARWARP_DEVICE bool is_dropped(int row, int column) const {
    if (args.drop_tile == 0) return false;
    const TileIndex tile = farwarp::tile::tile_of(args.grid, static_cast<int>(args.drop_tile) - 1);
    return tile.row == column / Tile::kRows && tile.column == row / Tile::kColumns;
  }

  /// [warpgroup] A box whose first sum is that of (row, column). Rows of the next rank come first, so that ranks do not all begin with
  /// one owner.
  FARWARP_DEVICE void send_box(const Call& call, int row, int column, Shared<std::byte> box) const {
    constexpr int kRowPieces = 64 / WordInbox::kElements;
    const int height = farwarp::tile::few_rows_of_box(columns, args.grid.splits);
    const int rows = row + height <= args.x_rows ? height : args.x_rows - row;
    if (rows <= 0) return;
    const int first = (args.view.rank + 1) * args.bands.owned % rows;
    for (int i = thread_index() % 128; i < rows * kRowPieces; i += 128) {
      const int turn = first + i / kRowPieces, in_box = turn < rows ? turn : turn - rows;
      const int to = column + i % kRowPieces * WordInbox::kElements;
      if (to >= args.n) continue;
      const Shared<std::byte> from = box + swizzled_offset(in_box, i % kRowPieces * WordInbox::kPieceBytes);
      Route::send(call, args, row + in_box, to / WordInbox::kElements,
                  load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(from.raw))));
    }
  }
};

/// Each row to its owner.
struct RowsToOwners {
  FARWARP_DEVICE static void send(const Call& call, const Args& args, int row, int piece, Vec16 eight) {
    const int owner = args.bands.by_owned.quotient(row);
    send_piece(call, args.words, owner, row - owner * args.bands.owned, piece, eight);
  }
};

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
