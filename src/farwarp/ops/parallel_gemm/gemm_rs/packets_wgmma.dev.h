// Hopper: a block whose partial sums leave in packets. Those who sum write them; where K is split, the blocks of a cluster first add up
// what they have summed.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/block_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/packets.dev.h"
#include "farwarp/tile/gemm/finisher_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::tile::TileIndex;
using farwarp::tile::Turns;
using farwarp::tile::Work;

/// The roles of a block (run_block()) with tiles of 128 rows of w by `columns` rows of x. `Route::send(call, args, row, four, data)` sends
/// four sums of a row of the whole sum to whom it may concern. Storers and the keeper have nothing to do.
template <class T, int columns, class Route>
struct ByPackets {
  using Block = SendingBlock<T, columns>;
  using Tile = typename Block::Tile;
  static constexpr bool kByPackets = true;

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
    // Warp after warp of every block: few packets are many blocks' work all the same.
    const int warp = (warp_index() - 4) * num_blocks() + block_index(), warps = 4 * Tile::kMultipliers * num_blocks();
    reduce_packets<T, Failure::in_place>(call, args, warp * Target::kWarpSize + lane_index(),
                                         warps * Target::kWarpSize);
  }

 private:
  FARWARP_DEVICE bool is_dropped(int row, int column) const {
    if (args.drop_tile == 0) return false;
    const TileIndex tile = farwarp::tile::tile_of(args.grid, static_cast<int>(args.drop_tile) - 1);
    return tile.row == column / Tile::kRows && tile.column == row / Tile::kColumns;
  }

  /// [warpgroup] A box whose first sum is that of (row, column). Rows of the next rank come first, so that ranks do not all begin with one owner.
  FARWARP_DEVICE void send_box(const Call& call, int row, int column, Shared<std::byte> box) const {
    constexpr int kRowPackets = 64 / PacketInbox::kElements;
    const int height = farwarp::tile::few_rows_of_box(columns, args.grid.splits);
    const int rows = row + height <= args.x_rows ? height : args.x_rows - row;
    if (rows <= 0) return;
    const int first = (args.view.rank + 1) * args.bands.owned % rows;
    for (int i = thread_index() % 128; i < rows * kRowPackets; i += 128) {
      const int turn = first + i / kRowPackets, in_box = turn < rows ? turn : turn - rows;
      const int to = column + i % kRowPackets * PacketInbox::kElements;
      if (to >= args.n) continue;
      const Shared<std::byte> from = box + swizzled_offset(in_box, i % kRowPackets * 8);
      Route::send(call, args, row + in_box, to / PacketInbox::kElements,
                  load(Shared<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(from.raw))));
    }
  }
};

/// Each row to its owner.
struct RowsToOwners {
  FARWARP_DEVICE static void send(const Call& call, const Args& args, int row, int four, std::uint64_t data) {
    const int owner = args.bands.by_owned.quotient(row);
    send_packet(call, args.packets, owner, row - owner * args.bands.owned, four, data);
  }
};

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
