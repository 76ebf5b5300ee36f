// A warpgroup's sums on their way to memory: rounded into boxes in shared memory, which tensor copies store while the next box is
// written and the next tile multiplied.
//
//   warpgroup: box's buffer is free -> write it (4 bytes a thread, the swizzle keeps banks apart) -> proxy fence -> meet
//   one thread:                                                                                    -> tensor_store, commit
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/tile/gemm/bias.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"
#include "farwarp/tile/gemm/split_k.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

using namespace farwarp::tile;

inline constexpr int kBoxBytes = 64 * kSwizzleRowBytes;  ///< 64 rows x 64 columns, or of `columns` rows, if transposed

/// [thread] The one that starts the warpgroup's copies.
FARWARP_DEVICE bool leads_warpgroup() { return thread_index() % 128 == 0; }

/// A warpgroup's buffers and its place in their turn.
template <int buffers>
class BoxWriter {
 public:
  /// `number`: of the warpgroup's numbered barrier.
  FARWARP_DEVICE BoxWriter(Shared<std::byte> memory, int number) : memory_(memory), number_(number) {}

  /// [warpgroup] Boxes 0 to count - 1 of a tile: all at once if there are as many buffers, else one by one, so that a box is written
  /// while the one before it leaves. `write(i, buffer)` fills box i, then `carry(i, buffer)` takes it on: the leader by copies which
  /// it commits as one group, or all threads by accesses of their own.
  template <int count, class Write, class Carry>
  FARWARP_DEVICE void put(const Write& write, const Carry& carry) const {
    constexpr int kAtOnce = count <= buffers ? count : 1;
#pragma unroll
    for (int first = 0; first < count; first += kAtOnce) {
      if (first == 0 || first >= buffers) {
        if (leads_warpgroup()) wait_for_buffer(first);
        group_sync(number_, 128);
      }
#pragma unroll
      for (int i = first; i < first + kAtOnce; ++i) write(i, memory_ + i % buffers * kBoxBytes);
      proxy_fence();
      group_sync(number_, 128);
#pragma unroll
      for (int i = first; i < first + kAtOnce; ++i) carry(i, memory_ + i % buffers * kBoxBytes);
    }
  }

  /// [warpgroup] Before the kernel ends: all boxes have arrived.
  FARWARP_DEVICE void finish() const {
    if (leads_warpgroup()) bulk_wait_all();
  }

 private:
  /// [thread] The leader: what left the buffer of box `first` has read it. Before box 0, all that left for the tile before.
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

/// [warpgroup] Rounds the sums of 64 rows from `row`, `columns` columns from `column` of the result, adding bias[column].
/// `carry(row, column, box)` takes on a box of 64 x 64 that begins there in the result (BoxWriter::put()), and drops what lies outside.
template <class T, int columns, class Writer, class Carry>
FARWARP_DEVICE void store_sums(Writer& writer, const Carry& carry, int row, int column, Global<const T> bias,
                               int bias_size, const float (&sums)[columns / 2]) {
  static_assert(columns % 32 == 0);
  const int thread = thread_index() % 128;
  // The last box of 96, 160 or 224 columns begins 32 columns early and repeats them: boxes are 64 wide.
  const auto begin_of = [](int box) { return 64 * box + 64 <= columns ? 64 * box : columns - 64; };
  const auto write_box = [&](int number, Shared<std::byte> box) {
    const int begin = begin_of(number);
    const auto write = [&](auto value) {
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        const MatrixIndex at = wgmma_sum(thread, i);
        const Shared<std::byte> to = box + swizzled_offset(at.row, at.column * 2);
        store(Shared<std::uint32_t>(reinterpret_cast<std::uint32_t*>(to.raw)),
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
  writer.template put<(columns + 63) / 64>(
      write_box, [&](int number, Shared<std::byte> box) { carry(row, column + begin_of(number), box); });
}

/// [warpgroup] The leader copies the box by tensor copies, which drop what lies outside.
FARWARP_DEVICE void carry_to(const TensorMap& map, int row, int column, Shared<std::byte> box) {
  if (!leads_warpgroup()) return;
  tensor_store(map, row, column, box);
  bulk_commit();
}

/// [warpgroup] The same for a product computed the other way round: the sums' rows are 64 columns of the result from `column`,
/// their columns rows of the result from `row`; boxes are `columns` x 64.
template <class T, int columns, class Writer, class Carry>
FARWARP_DEVICE void store_sums_transposed(Writer& writer, const Carry& carry, int row, int column, Global<const T> bias,
                                          int bias_size, const float (&sums)[columns / 2]) {
  static_assert(columns <= 64);
  const int thread = thread_index() % 128;
  const int upper = wgmma_sum(thread, 0).row;
  const float biases[2] = {bias_at(bias, column + upper, bias_size), bias_at(bias, column + upper + 8, bias_size)};
  const auto write_box = [&](int, Shared<std::byte> box) {
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) {
      const MatrixIndex at = wgmma_sum(thread, i);
      store(Shared<T>(reinterpret_cast<T*>((box + swizzled_offset(at.column, at.row * 2)).raw)),
            round_to<T>(add(sums[i], biases[i / 2 % 2])));
    }
  };
  writer.template put<1>(write_box, [&](int, Shared<std::byte> box) { carry(row, column, box); });
}

/// [warpgroup] The sums of multiplier number `multiplier` of the tile whose first rows are `row` of A and `column` of B. `swap_ab`: A
/// is w, and the tile is stored transposed.
template <class Tile, bool swap_ab, class Writer, class Carry>
FARWARP_DEVICE void store_half_tile(Writer& writer, const Carry& carry, int multiplier, int row, int column,
                                    Global<const typename Tile::Element> bias, int bias_size,
                                    const float (&sums)[Tile::kSums]) {
  using T = typename Tile::Element;
  const int first = row + 64 * multiplier;
  if constexpr (swap_ab) {
    store_sums_transposed<T, Tile::kColumns>(writer, carry, column, first, bias, bias_size, sums);
  } else {
    store_sums<T, Tile::kColumns>(writer, carry, first, column, bias, bias_size, sums);
  }
}

// ---- a tile's sums --------------------------------------------------------------------------------------------------

/// [warpgroup] Of multiplier number `multiplier`. `carry(row, column, box)` takes on a box that begins there in the result.
template <class Block, bool swap_ab, class Carry>
struct Finisher {
  using Tile = typename Block::Tile;
  using T = typename Tile::Element;

  const Block& block;
  int multiplier;
  int splits;
  Global<const T> bias;  ///< of the result's columns, or null
  int bias_size;
  Carry carry;
  BoxWriter<Block::kBuffers> writer;

  /// Rounds and stores block number `of_rows` of the rows, and of the columns part number `part`, of as many as `sums` are.
  template <int count>
  FARWARP_DEVICE void store_part(TileIndex origin, int of_rows, int part, const float (&sums)[count]) const {
    const int row = origin.row + 64 * (Tile::kBlocks * multiplier + of_rows);
    const int column = origin.column + part * 2 * count;
    if constexpr (swap_ab) {
      store_sums_transposed<T, 2 * count>(writer, carry, column, row, bias, bias_size, sums);
    } else {
      store_sums<T, 2 * count>(writer, carry, row, column, bias, bias_size, sums);
    }
  }

  /// `parts`: half of the cluster's blocks, which have each summed a part of K. False if other blocks add up what this multiplier
  /// has summed; else `total` gets the own part's sums.
  template <int parts>
  FARWARP_DEVICE bool exchange(int split, const float (&sums)[Tile::kSums], float (&total)[Tile::kSums / parts],
                               int& part) const {
    using Sums = ClusterSums<Tile::kSums, parts>;
    static_assert(Sums::kInboxBytes <= Tile::kMultipliers * Block::kBuffers * WgmmaShared::kBoxBytes);
    const Sums cluster(block.boxes(0), split);
    cluster_wait();  // all have begun
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
    return true;  // the inbox becomes boxes behind BoxWriter::put()'s first barrier
  }

  /// `origin`: of the tile's rows (A's) and columns (B's). `split`: which part of K the sums are of.
  FARWARP_DEVICE void finish(TileIndex origin, int split, const float (&blocks)[Tile::kBlocks][Tile::kSums]) const {
    const auto& sums = blocks[0];
    int part = 0;
    if constexpr (swap_ab) {
      if (splits == 4) {
        float total[Tile::kSums / 2];
        if (exchange<2>(split, sums, total, part)) store_part(origin, 0, part, total);
        return;
      }
    }
    if constexpr (Tile::kBlocks == 1 && Tile::kColumns <= kMostSplitColumns) {
      float total[Tile::kSums];
      if (splits == 1) {
#pragma unroll
        for (int i = 0; i < Tile::kSums; ++i) total[i] = sums[i];
      } else if (!exchange<1>(split, sums, total, part)) {
        return;
      }
      store_part(origin, 0, 0, total);
    } else {
#pragma unroll
      for (int block = 0; block < Tile::kBlocks; ++block) store_part(origin, block, 0, blocks[block]);
    }
  }
};

/// [a cluster's warps that do not multiply] All threads of a cluster come to its barrier: Finisher::exchange()'s, once for each work.
/// The first half, cluster_arrive(), is before the roles part.
FARWARP_DEVICE void attend_exchange() {
  cluster_wait();
  cluster_arrive<Order::relaxed>();
  cluster_wait();
}

/// [warpgroup] Multiplies 64 rows of each of the block's works and finishes them; `origin(work)` is where its tile begins.
template <class Block, class Finish, class Origin, class Wait>
FARWARP_DEVICE void multiply_and_finish(const Block& block, const TileGrid& grid, Turns turns, const Finish& finisher,
                                        const Origin& origin, const Wait& wait) {
  using Tile = typename Block::Tile;
  RingPosition<Tile::kStages> at;
  for (int number = turns.first; number < grid.works(); number += turns.stride) {
    const Work work = work_at(grid, number);
    float sums[Tile::kBlocks][Tile::kSums];
    multiply_steps(block.tile(), finisher.multiplier, work.steps.count, sums, at, wait);
    finisher.finish(origin(work), work.split, sums);
  }
  finisher.writer.finish();
}

/// [warpgroup] The role of multiplier number `multiplier`: multiplies 64 rows of each of the block's works and stores them at `args.out`.
/// `Args`: an argument block with the members grid, out, bias and n. `origin(work)` is where the work's tile begins. `swap_ab`: A is w, and
/// the tile is stored transposed.
template <bool swap_ab, class Args, class Block, class Origin, class Wait>
FARWARP_DEVICE void multiply_and_store(const Args& args, const Block& block, int multiplier, Turns turns,
                                       const Origin& origin, const Wait& wait) {
  using T = typename Block::Tile::Element;
  const auto carry = [&](int row, int column, Shared<std::byte> box) { carry_to(args.out, row, column, box); };
  const Finisher<Block, swap_ab, decltype(carry)> finisher{.block = block,
                                                           .multiplier = multiplier,
                                                           .splits = args.grid.splits,
                                                           .bias = Global<const T>(static_cast<const T*>(args.bias)),
                                                           .bias_size = args.n,
                                                           .carry = carry,
                                                           .writer = {block.boxes(multiplier), 1 + multiplier}};
  multiply_and_finish(block, args.grid, turns, finisher, origin, wait);
}

}  // namespace farwarp::FARWARP_TARGET::tile
