// Partial sums that are sent as words, on Hopper: by store warps, or with swap_ab by the multipliers themselves.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/block_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/exchange.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/store_warp_wgmma.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_reduce {

// ---- by store warps -------------------------------------------------------------------------------------------------
//
//   multiplier  wait empty[b] -> write box b -> arrive full[b] -> goes on multiplying
//   store warp  wait full[b] -> 8 times: load 2 x 16 bytes a lane, store them to the owners as words, which are their
//                 own flags
//               arrive empty[b] after the last loads, before the last stores

/// [warp] Sends a box: 64 x 64 of the whole sum from (row, column), without what is outside. Calls `on_read()` when the
/// box has been read, which is before the last stores: on a busy link stores may wait for long.
template <class OnRead>
FARWARP_DEVICE void send_words(const Args& args, std::uint32_t epoch, int row, int column, Shared<std::byte> box,
                               const OnRead& on_read) {
  // With 4, ptxas spills in one of the kernels (fp16, 128 columns).
  constexpr int kAtOnce = 2, kRowsAtOnce = kAtOnce * kWordChunkRows;
  const int in_row = lane_index() % kWordChunkVectors;
  const int vector = column / WordInbox::kElements + in_row;
  const int rows = vector < args.word_inbox.vectors ? args.x_rows - row : 0;  // how many rows of the box are inside
  const std::int64_t place = args.word_inbox.place(epoch, args.view.rank, 0, vector);
  // A box that has the first row of the rank after this one is sent from that row on, rounded down to kRowsAtOnce, so
  // that ranks do not all begin with one owner. Where another box begins does not matter.
  const int first = (args.view.rank + 1) % args.view.size * args.bands.owned;
#pragma unroll 1
  for (int sent = 0; sent < 64; sent += kRowsAtOnce) {
    const int begin = (first + sent) / kRowsAtOnce * kRowsAtOnce % 64 + lane_index() / kWordChunkVectors;
    Vec16 vectors[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int in_box = begin + i * kWordChunkRows;
      const Shared<std::byte> from = box + swizzled_offset(in_box, in_row * WordInbox::kVectorBytes);
      vectors[i] = load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(from.raw)));
    }
    if (sent + kRowsAtOnce == 64) on_read();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int in_box = begin + i * kWordChunkRows;
      if (in_box >= rows) continue;
      const int owner = args.bands.by_owned.quotient(row + in_box);
      const std::int64_t own_row = row + in_box - owner * args.bands.owned;
      store_words(peer_address<Vec16>(args.view, owner, place + own_row * args.word_inbox.row_bytes()),
                  sendable(vectors[i]));
    }
  }
}

/// [warp] The role: sends all sums of multiplier number `multiplier`.
template <class Block, class WaitBarrier>
FARWARP_DEVICE void send_words_role(const Call& call, const Args& args, const Block& block, int multiplier, Turns turns,
                                    const WaitBarrier& wait) {
  using Tile = typename Block::Tile;
  static_assert(Tile::kColumns % 64 == 0);  // otherwise boxes overlap, and vectors would be sent twice
  BoxConsumer<typename Block::Boxes, WaitBarrier> boxes(block.boxes_of(multiplier), wait);
  for (int number = turns.first; number < args.grid.works(); number += turns.stride) {
    const Work work = farwarp::tile::work_at(args.grid, number);
    if (args.grid.splits > 1) {
      if (!boxes.await()) return;
      if (!boxes.starts_tile()) {
        boxes.advance();
        boxes.give_back_now();
        continue;
      }
    }
    const int row = args.order.at(work.at.row) * Tile::kRows + 64 * multiplier;
    const bool sends = call.live && static_cast<std::uint32_t>(work.tile) + 1 != args.drop_put;
#pragma unroll 1
    for (int column = work.at.column * Tile::kColumns; column < (work.at.column + 1) * Tile::kColumns; column += 64) {
      if (!boxes.await()) return;
      const Shared<std::byte> box = boxes.box();
      boxes.advance();
      if (sends) {
        send_words(args, call.epoch, row, column, box, [&] { boxes.give_back_now(); });
      } else {
        boxes.give_back_now();
      }
    }
  }
}

// ---- by multipliers, with swap_ab -----------------------------------------------------------------------------------
//
// The multipliers store the words. If K is split, the blocks of a cluster first add up their sums.

using farwarp::tile::TileIndex;
using farwarp::tile::Turns;
using farwarp::tile::Work;

/// Roles (run_block()) for tiles of 128 rows of w by `columns` rows of x. `Route::send(call, args, row, vector, eight)`
/// sends eight sums of a row of the whole sum: RowsToOwners, or gemm-ar's. Store warps and the reduce warp send and add
/// up nothing.
template <class T, int columns, class Route>
struct SwapAbByWords {
  using Block = SendingBlock<T, columns>;
  using Tile = typename Block::Tile;
  static constexpr bool kByWords = true, kClusters = true;
  static constexpr RegisterBudget kRegisters{88, 208};

  const Args& args;

  template <class WaitBarrier>
  FARWARP_DEVICE void send(const Block&, int, Turns, const WaitBarrier&) const {}
  template <class WaitBarrier>
  FARWARP_DEVICE void reduce(const Block&, const WaitBarrier&) const {}

  template <class WaitBarrier>
  FARWARP_DEVICE void run_multiplier(const Block& block, int multiplier, Turns turns, const WaitBarrier& wait) const {
    const auto send_box = [&](int row, int column, Shared<std::byte> box) {
      const Call call = block.await_call(args.view, args.slot, wait);  // normally published by now
      if (call.live && !is_dropped(row, column)) send_box_words(call, row, column, box);
    };
    const Global<const T> bias(static_cast<const T*>(args.bias));
    const tile::Finisher<Block, true, decltype(send_box)> finisher{
        block,  multiplier,     args.grid.splits, bias,
        args.n, Tile::kColumns, send_box,         {block.boxes(multiplier), 1 + multiplier}};
    const auto origin = [](const Work& work) {  // without args.order, which with swap_ab is in_order()
      return TileIndex{work.at.row * Tile::kRows, work.at.column * Tile::kColumns};
    };
    tile::multiply_and_finish<Block>(args.grid, turns, finisher, origin,
                                     tile::unscaled_steps(block.tile(), multiplier, wait));
  }

  template <class WaitBarrier>
  FARWARP_DEVICE void after_done(const Block& block, const WaitBarrier& wait) const {
    Call call = block.await_call(args.view, args.slot, wait);
    for_each_vector(call, args.word_inbox, args.word_inbox.rows, share(), [&](int row, int vector) {
      reduce_vector<T, Failure::inlined>(call, args, row, vector, IntoY{args});
    });
  }

 protected:
  /// The share of a multiplier's thread. A warp takes runs of consecutive vectors, one a lane. Consecutive runs go to
  /// warps of different blocks, so that few vectors are spread over many blocks.
  FARWARP_DEVICE static VectorShare share() {
    const int warp = (warp_index() - 4) * num_blocks() + block_index(), warps = 4 * Tile::kMultipliers * num_blocks();
    return {warp * Target::kWarpSize + lane_index(), warps * Target::kWarpSize};
  }

 private:
  FARWARP_DEVICE bool is_dropped(int row, int column) const {
    if (args.drop_put == 0) return false;
    const TileIndex tile = farwarp::tile::tile_of(args.grid, static_cast<int>(args.drop_put) - 1);
    return tile.row == column / Tile::kRows && tile.column == row / Tile::kColumns;
  }

  /// [warpgroup] Sends a box that begins at (row, column) of the whole sum. It begins with the rows of the rank after
  /// this one, so that ranks do not all begin with one owner.
  FARWARP_DEVICE void send_box_words(const Call& call, int row, int column, Shared<std::byte> box) const {
    constexpr int kRowVectors = 64 / WordInbox::kElements;
    const int height = farwarp::tile::swap_ab_first_rows(columns, args.grid.splits);
    const int rows = row + height <= args.x_rows ? height : args.x_rows - row;
    if (rows <= 0) return;
    const int next = (args.view.rank + 1) % args.view.size * args.bands.owned - row;
    const int first = next > 0 && next < rows ? next : 0;
    for (int i = thread_index() % 128; i < rows * kRowVectors; i += 128) {
      const int unwrapped = first + i / kRowVectors, in_box = unwrapped < rows ? unwrapped : unwrapped - rows;
      const int to = column + i % kRowVectors * WordInbox::kElements;
      if (to >= args.n) continue;
      const Shared<std::byte> from = box + swizzled_offset(in_box, i % kRowVectors * WordInbox::kVectorBytes);
      Route::send(call, args, row + in_box, to / WordInbox::kElements,
                  load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(from.raw))));
    }
  }
};

/// Sends each row to its owner.
struct RowsToOwners {
  FARWARP_DEVICE static void send(const Call& call, const Args& args, int row, int vector, Vec16 eight) {
    const int owner = args.bands.by_owned.quotient(row);
    send_vector(call, args.word_inbox, owner, row - owner * args.bands.owned, vector, eight);
  }
};

}  // namespace farwarp::FARWARP_TARGET::gemm_reduce
