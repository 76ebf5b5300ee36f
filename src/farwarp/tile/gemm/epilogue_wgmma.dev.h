// Stores a warpgroup's sums. The warpgroup rounds them into boxes in shared memory, and tensor copies store the boxes.
// While a copy runs, the warpgroup writes the next box or multiplies the next tile.
//
//   warpgroup:  box's buffer is free -> write it (4 bytes a thread, the swizzle avoids bank conflicts) -> proxy fence
//               -> barrier
//   one thread: after the barrier: tensor_store, commit
//
// gemm-rs and gemm-ar give fill_boxes() other writers, whose boxes a store warp sends.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/tile/gemm/bias.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"
#include "farwarp/tile/gemm/split_k.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

using namespace farwarp::tile;

/// [thread] True for the leader: the thread that starts the warpgroup's copies.
FARWARP_DEVICE bool leads_warpgroup() { return thread_index() % 128 == 0; }

/// A warpgroup's buffers for boxes. Box i of a tile is written into buffer i % buffers.
template <int buffers, int box_bytes = WgmmaShared::kBoxBytes>
class BoxWriter {
 public:
  /// `number`: the number of the warpgroup's barrier (group_sync()).
  FARWARP_DEVICE BoxWriter(Shared<std::byte> memory, int number) : memory_(memory), number_(number) {}

  /// [warpgroup] Writes boxes 0 to count - 1 of a tile: all at once if there are enough buffers, else one by one, so
  /// that a box is written while the box before it is copied. `write(i, buffer)` fills box i. Then
  /// `send_box(i, buffer)` sends it on: either the leader starts copies and commits them as one group, or all threads
  /// access the box themselves.
  template <int count, class Write, class SendBox>
  FARWARP_DEVICE void write_boxes(const Write& write, const SendBox& send_box) const {
    constexpr int kAtOnce = count <= buffers ? count : 1;
#pragma unroll
    for (int first = 0; first < count; first += kAtOnce) {
      if (first == 0 || first >= buffers) {
        if (leads_warpgroup()) wait_for_buffer(first);
        group_sync(number_, 128);
      }
#pragma unroll
      for (int i = first; i < first + kAtOnce; ++i) write(i, memory_ + i % buffers * box_bytes);
      proxy_fence();
      group_sync(number_, 128);
#pragma unroll
      for (int i = first; i < first + kAtOnce; ++i) send_box(i, memory_ + i % buffers * box_bytes);
    }
  }

  /// [thread] Stores two neighbours of a row, which are rounded, in a box.
  template <class T>
  FARWARP_DEVICE void put(Shared<std::uint32_t> to, std::uint32_t pair) const {
    store(to, pair);
  }

  /// [warpgroup] Waits until all copies are complete. Must be called before the kernel ends.
  FARWARP_DEVICE void finish() const {
    if (leads_warpgroup()) bulk_wait_all();
  }

 private:
  /// [thread] The leader waits until the copies from the buffer of box `first` have read it; for box 0, until all
  /// copies of the tile before have read their buffers.
  FARWARP_DEVICE void wait_for_buffer(int first) const {
    if (first == 0) {
      bulk_wait_read<0>();
    } else {
      bulk_wait_read<buffers - 1>();
    }
  }

  Shared<std::byte> memory_;
  int number_;
};

/// [warpgroup] Fills boxes in shared memory: adds bias[column] to the sums of 64 rows from `row` and `columns` columns
/// from `column` of the result, and rounds them. `send_box(row, column, box)` takes each full box of 64 x 64, which
/// begins there in the result (BoxWriter::write_boxes()). It must drop what lies outside the result.
template <class T, int columns, class Writer, class SendBox>
FARWARP_DEVICE void fill_boxes(Writer& writer, const SendBox& send_box, int row, int column, Global<const T> bias,
                               int bias_size, const float (&sums)[columns / 2]) {
  static_assert(columns % 8 == 0 && columns >= 64);
  const int thread = thread_index() % 128;
  // Boxes are 64 wide. If 64 does not divide the columns, the last box begins early and repeats some.
  const auto begin_of = [](int box) { return 64 * box + 64 <= columns ? 64 * box : columns - 64; };
  const auto write_box = [&](int number, Shared<std::byte> box) {
    const int begin = begin_of(number);
    const auto write = [&](auto value) {
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        const MatrixIndex at = wgmma_sum(thread, i);
        const Shared<std::byte> to = box + swizzled_offset(at.row, at.column * 2);
        writer.template put<T>(
            Shared<std::uint32_t>(reinterpret_cast<std::uint32_t*>(to.raw)),
            round_pair<T>(value(i, column + begin + at.column), value(i + 1, column + begin + at.column + 1)));
      }
    };
    const float* const of_box = &sums[begin / 2];
    if (bias) {
      write([&](int i, int index) { return add(of_box[i], bias_at(bias, index, bias_size)); });
    } else {
      write([&](int i, int) { return of_box[i]; });
    }
  };
  writer.template write_boxes<(columns + 63) / 64>(
      write_box, [&](int number, Shared<std::byte> box) { send_box(row, column + begin_of(number), box); });
}

/// [warpgroup] The leader starts a tensor copy of the box. The copy drops what lies outside the result.
FARWARP_DEVICE void store_box(const TensorMap& map, int row, int column, Shared<std::byte> box) {
  if (!leads_warpgroup()) return;
  tensor_store(map, row, column, box);
  bulk_commit();
}

/// [warpgroup] fill_boxes() for swap_ab: the rows of the sums are 64 columns of the result from `column`, and their
/// columns are rows of the result from `row`. The first box has swap_ab_first_rows(columns, 1) rows, a second the
/// others.
template <class T, int columns, class Writer, class SendBox>
FARWARP_DEVICE void fill_boxes_transposed(Writer& writer, const SendBox& send_box, int row, int column,
                                          Global<const T> bias, int bias_size, const float (&sums)[columns / 2]) {
  constexpr int kFirst = swap_ab_first_rows(columns, 1), kBoxes = columns > kFirst ? 2 : 1;
  const int thread = thread_index() % 128;
  const int upper = wgmma_sum(thread, 0).row;
  const float biases[2] = {bias_at(bias, column + upper, bias_size), bias_at(bias, column + upper + 8, bias_size)};
  const auto write_box = [&](int number, Shared<std::byte> box) {
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) {
      const MatrixIndex at = wgmma_sum(thread, i);
      if ((i / 4 * 8 < kFirst) != (number == 0)) continue;
      store(Shared<T>(reinterpret_cast<T*>((box + swizzled_offset(at.column - number * kFirst, at.row * 2)).raw)),
            round_to<T>(add(sums[i], biases[i / 2 % 2])));
    }
  };
  writer.template write_boxes<kBoxes>(
      write_box, [&](int number, Shared<std::byte> box) { send_box(row + number * kFirst, column, box); });
}

/// [warpgroup] Fills boxes with the sums of multiplier number `multiplier` of the tile that begins at row `row` of A
/// and row `column` of B.
/// `swap_ab`: A is w, and boxes are transposed.
template <class Tile, bool swap_ab, class Writer, class SendBox>
FARWARP_DEVICE void fill_multiplier_boxes(Writer& writer, const SendBox& send_box, int multiplier, int row, int column,
                                          Global<const typename Tile::Element> bias, int bias_size,
                                          const float (&sums)[Tile::kSums]) {
  using T = typename Tile::Element;
  const int first = row + 64 * multiplier;
  if constexpr (swap_ab) {
    fill_boxes_transposed<T, Tile::kColumns>(writer, send_box, column, first, bias, bias_size, sums);
  } else {
    fill_boxes<T, Tile::kColumns>(writer, send_box, first, column, bias, bias_size, sums);
  }
}

// ---- a tile's sums --------------------------------------------------------------------------------------------------

/// [warpgroup] Finishes the tiles of multiplier number `multiplier`: adds up splits through the cluster, rounds and
/// stores.
/// `send_box(row, column, box)` sends on a box that begins there in the result. It must drop the box's rows from
/// `x_rows` of the tile on. `four_splits`: also in tiles with has_four_splits().
template <class Block, bool swap_ab, class SendBox, bool four_splits = false>
struct Finisher {
  using Tile = typename Block::Tile;
  using T = typename Tile::Element;
  // A box of more than 64 rows takes all buffers.
  static constexpr bool kLargeBoxes = swap_ab && Tile::kColumns > 64;
  static constexpr int kBuffers = kLargeBoxes ? 1 : Block::kBuffers;
  using Writer = BoxWriter<kBuffers, Block::kBuffers / kBuffers * WgmmaShared::kBoxBytes>;
  static_assert(!kLargeBoxes || swap_ab_first_rows(Tile::kColumns, 1) <= 64 * Block::kBuffers);

  const Block& block;
  int multiplier;
  int splits;
  Global<const T> bias;  ///< [columns of the result], or null
  int bias_size;
  int x_rows;  ///< rows of the result that the tile has
  SendBox send_box;
  Writer writer;

  /// Rounds and stores the sums of the multiplier's block of 64 rows number `row_block`, in part number `part` of the
  /// columns. A part has 2 * count columns.
  template <int count>
  FARWARP_DEVICE void store_part(TileIndex origin, int row_block, int part, const float (&sums)[count]) const {
    const int row = origin.row + 64 * (Tile::kRowBlocks * multiplier + row_block);
    const int column = origin.column + part * 2 * count;
    const int end = (swap_ab ? origin.column : origin.row) + x_rows;
    const auto send = [&](int y_row, int y_column, Shared<std::byte> box) {
      if (y_row < end) send_box(y_row, y_column, box);
    };
    if constexpr (swap_ab) {
      fill_boxes_transposed<T, 2 * count>(writer, send, column, row, bias, bias_size, sums);
    } else {
      fill_boxes<T, 2 * count>(writer, send, row, column, bias, bias_size, sums);
    }
  }

  /// Adds up the sums of the blocks of the cluster, 2 * parts in all, each of which has summed a part of K. Returns
  /// false if other blocks own all parts of this multiplier's columns. Otherwise `part` is the part that this block
  /// owns, and `total` has its sums.
  template <int parts>
  FARWARP_DEVICE bool sum_in_cluster(int split, const float (&sums)[Tile::kSums], float (&total)[Tile::kSums / parts],
                                     int& part) const {
    using Sums = ClusterSums<Tile::kSums, parts>;
    static_assert(Sums::kClusterInboxBytes <= Tile::kMultipliers * Block::kBuffers * WgmmaShared::kBoxBytes);
    // Consecutive blocks have a tile's splits, so split s is block s of its cluster.
    const Sums cluster(block.boxes(0), split);
    cluster_wait();  // all blocks of the cluster have begun
    cluster.send(multiplier, sums);
    cluster_arrive<Order::release>();
    cluster_wait();
    part = cluster.own_part(multiplier);
    if (part < 0) return false;
    if (part == 0) {
      cluster.template add_up<0>(sums, total);
    } else {
      cluster.template add_up<parts - 1>(sums, total);
    }
    // BoxWriter::write_boxes()'s first barrier orders these reads of the cluster inbox before the boxes that overwrite
    // it
    return true;
  }

  /// `origin`: where the tile begins in the rows of A and in the rows of B. `split`: the part of K that was summed.
  FARWARP_DEVICE void finish(TileIndex origin, int split, const float (&blocks)[Tile::kRowBlocks][Tile::kSums]) const {
    constexpr bool kSplits = Tile::kRows == kWgmmaRows && Tile::kColumns <= kMaxSplitColumns;
    const auto& sums = blocks[0];
    int part = 0;
    constexpr bool kFour =
        four_splits ? has_four_splits(swap_ab, Tile::kColumns) : swap_ab && Tile::kColumns <= kMaxFourSplitColumns;
    if constexpr (kSplits && kFour) {
      if (splits == 4) {
        float total[Tile::kSums / 2];
        if (sum_in_cluster<2>(split, sums, total, part)) store_part(origin, 0, part, total);
        return;
      }
    }
    if constexpr (kSplits) {
      float total[Tile::kSums];
      if (splits == 1) {
#pragma unroll
        for (int i = 0; i < Tile::kSums; ++i) total[i] = sums[i];
      } else if (!sum_in_cluster<1>(split, sums, total, part)) {
        return;
      }
      store_part(origin, 0, 0, total);
    } else {
#pragma unroll
      for (int block = 0; block < Tile::kRowBlocks; ++block) store_part(origin, block, 0, blocks[block]);
    }
  }
};

/// [warps that do not multiply] Takes part in the cluster's barrier in Finisher::sum_in_cluster(): all threads of the
/// cluster must. One call for each work; a block has one work if a cluster splits K. The kernel calls the first
/// cluster_arrive() before its warps take up their roles.
FARWARP_DEVICE void attend_cluster_sum() {
  cluster_wait();
  cluster_arrive<Order::relaxed>();
  cluster_wait();
}

/// [warpgroup] Multiplies the multiplier's rows of each of the block's works and finishes them. `origin(work)` is where
/// the tile begins. `multiply(work, sums, at)` sums the work's steps as multiply_steps() does.
template <class Block, class Finish, class Origin, class Multiply>
FARWARP_DEVICE void multiply_and_finish(const TileGrid& grid, Turns turns, const Finish& finisher, const Origin& origin,
                                        const Multiply& multiply) {
  using Tile = typename Block::Tile;
  RingPosition<Tile::kStages> at;
  for (int number = turns.first; number < grid.works(); number += turns.stride) {
    const Work work = work_at(grid, number);
    float sums[Tile::kRowBlocks][Tile::kSums];
    const TraceStart multiplied = trace_start();
    multiply(work, sums, at);
    trace_warp(multiplied, TraceWork::kMultiply, work.tile);
    const TraceStart stored = trace_start();
    finisher.finish(origin(work), work.split, sums);
    trace_warp(stored, TraceWork::kStore, work.tile);
  }
  finisher.writer.finish();
}

/// [warpgroup] The role of multiplier number `multiplier`: multiplies its rows of each of the block's works and stores
/// them. `Args`: an argument block with the members grid, bias and n. `origin(work)` is where the work's tile begins,
/// `map_of(row)` the tensor map with which a box that begins in row `row` of the result is stored. `multiply`: of
/// multiply_and_finish().
/// `swap_ab`: A is w, and the tile is stored transposed. `x_rows`: rows of the result in a tile.
template <bool swap_ab, bool four_splits, class Args, class Block, class Origin, class MapOf, class Multiply>
FARWARP_DEVICE void multiply_and_store(const Args& args, const Block& block, int multiplier, Turns turns, int x_rows,
                                       const Origin& origin, const MapOf& map_of, const Multiply& multiply) {
  using T = typename Block::Tile::Element;
  const auto send_box = [&](int row, int column, Shared<std::byte> box) { store_box(map_of(row), row, column, box); };
  const Finisher<Block, swap_ab, decltype(send_box), four_splits> finisher{
      .block = block,
      .multiplier = multiplier,
      .splits = args.grid.splits,
      .bias = Global<const T>(static_cast<const T*>(args.bias)),
      .bias_size = args.n,
      .x_rows = x_rows,
      .send_box = send_box,
      .writer = {block.boxes(multiplier), 1 + multiplier}};
  multiply_and_finish<Block>(args.grid, turns, finisher, origin, multiply);
}

}  // namespace farwarp::FARWARP_TARGET::tile
