// What a multiplying warpgroup does with a tile's sums: whole, or with those of the other blocks of a cluster added, to their boxes.
#pragma once

#include "farwarp/tile/gemm/block_wgmma.dev.h"
#include "farwarp/tile/gemm/cluster_split.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

using farwarp::tile::TileIndex;

/// [warpgroup] Of multiplier number `multiplier`. `carry(row, column, box)` takes on a box that begins there in the result.
template <class Block, bool swapped, class Carry>
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
    if constexpr (swapped) {
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
    if constexpr (swapped) {
      if (splits == 4) {
        float total[Tile::kSums / 2];
        if (exchange<2>(split, sums, total, part)) store_part(origin, 0, part, total);
        return;
      }
    }
    if constexpr (Tile::kBlocks == 1 && Tile::kColumns <= farwarp::tile::kMostSplitColumns) {
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
    const Work work = farwarp::tile::work_at(grid, number);
    float sums[Tile::kBlocks][Tile::kSums];
    multiply_steps(block.tile(), finisher.multiplier, work.steps.count, sums, at, wait);
    finisher.finish(origin(work), work.split, sums);
  }
  finisher.writer.finish();
}

}  // namespace farwarp::FARWARP_TARGET::tile
