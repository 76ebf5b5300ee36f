// gemm on Hopper: persistent blocks of three warpgroups, one that loads and two that multiply and store.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/tile/gemm/cluster_split.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/loader_wgmma.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::gemm::Args;
using farwarp::tile::Turns;
using farwarp::tile::Work;

/// [warpgroup] What multiplier number `multiplier` has summed of a tile.
template <class Block, bool swapped>
struct Finisher {
  using Tile = typename Block::Tile;
  using T = typename Tile::Element;

  const Args& args;
  const Block& block;
  int multiplier;
  tile::BoxWriter<Block::kBuffers> writer;

  /// Rounds and stores block number `of_rows` of the rows, and of the columns part number `part`, of as many as `sums` are.
  template <int count>
  FARWARP_DEVICE void store_part(const Work& work, int of_rows, int part, const float (&sums)[count]) const {
    const Global<const T> bias(static_cast<const T*>(args.bias));
    const auto carry = [&](int row, int column, Shared<std::byte> box) { tile::carry_to(args.out, row, column, box); };
    const int row = work.at.row * Tile::kRows + 64 * (Tile::kBlocks * multiplier + of_rows);
    const int column = work.at.column * Tile::kColumns + part * 2 * count;
    if constexpr (swapped) {
      tile::store_sums_transposed<T, 2 * count>(writer, carry, column, row, bias, args.n, sums);
    } else {
      tile::store_sums<T, 2 * count>(writer, carry, row, column, bias, args.n, sums);
    }
  }

  /// `parts`: half of the cluster's blocks, which have each summed a part of K. False if other blocks add up what this multiplier
  /// has summed; else `total` gets the own part's sums.
  template <int parts>
  FARWARP_DEVICE bool exchange(const Work& work, const float (&sums)[Tile::kSums], float (&total)[Tile::kSums / parts],
                               int& part) const {
    using Sums = tile::ClusterSums<Tile::kSums, parts>;
    static_assert(Sums::kInboxBytes <= Tile::kMultipliers * Block::kBuffers * farwarp::tile::WgmmaShared::kBoxBytes);
    const Sums cluster(block.boxes(0), work.split);
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

  FARWARP_DEVICE void finish(const Work& work, const float (&blocks)[Tile::kBlocks][Tile::kSums]) const {
    const auto& sums = blocks[0];
    int part = 0;
    if constexpr (swapped) {
      if (args.grid.splits == 4) {
        float total[Tile::kSums / 2];
        if (exchange<2>(work, sums, total, part)) store_part(work, 0, part, total);
        return;
      }
    }
    if constexpr (Tile::kBlocks == 1 && Tile::kColumns <= farwarp::tile::kMostSplitColumns) {
      float total[Tile::kSums];
      if (args.grid.splits == 1) {
#pragma unroll
        for (int i = 0; i < Tile::kSums; ++i) total[i] = sums[i];
      } else if (!exchange<1>(work, sums, total, part)) {
        return;
      }
      store_part(work, 0, 0, total);
    } else {
#pragma unroll
      for (int block = 0; block < Tile::kBlocks; ++block) store_part(work, block, 0, blocks[block]);
    }
  }
};

/// [warpgroup] Multiplies 64 rows of each tile and stores them. `swapped`: A is w, and the tile is stored transposed.
template <bool swapped, class Block, class Wait>
FARWARP_DEVICE void multiply_and_store(const Args& args, const Block& block, int multiplier, Turns turns,
                                       const Wait& wait) {
  using Tile = typename Block::Tile;
  const Finisher<Block, swapped> finisher{args, block, multiplier,
                                          tile::BoxWriter<Block::kBuffers>(block.boxes(multiplier), 1 + multiplier)};
  tile::RingPosition<Tile::kStages> at;
  for (int number = turns.first; number < args.grid.works(); number += turns.stride) {
    const Work work = farwarp::tile::work_at(args.grid, number);
    float sums[Tile::kBlocks][Tile::kSums];
    tile::multiply_steps(block.tile(), multiplier, work.steps.count, sums, at, wait);
    finisher.finish(work, sums);
  }
  finisher.writer.finish();
}

/// [thread] Joins the call for its block and leaves it again: nothing here depends on the epoch or waits for a peer, so nobody else has
/// to wait for the cells.
FARWARP_DEVICE void keep_call(const Args& args) {
  std::uint32_t stage = 0;
  Call call = read_call(args.view, args.slot, stage);
  if (!call.live) return;
  if (block_index() == 0) claim_call(call);
  leave_call(call, 0);
}

/// The numbered barrier of the loader's warp and the multipliers, before the flood of copies. A cold launch has its instructions to
/// fetch, too: behind copies of all stages of all blocks, 26 MB, those of the main loop came 4 us later (64 x 7168 x 2304 on an
/// H200). The first step's copies alone do not hold them up.
inline constexpr int kReady = 3;
inline constexpr int kReadyThreads = 256 + 32;

// What warps give up and take: a block has what it was launched with, or the taking waits for ever.
inline constexpr int kLoaderRegisters = 40, kMultiplierRegisters = 232;
static_assert(128 * kLoaderRegisters + 256 * kMultiplierRegisters <= farwarp::tile::kWgmmaThreads * 168);

template <class T, int columns, bool swapped, int rows = farwarp::tile::kWgmmaRows>
FARWARP_DEVICE void gemm_wgmma(const Args& args) {
  using Block = tile::WgmmaBlock<T, columns, farwarp::tile::wgmma_boxes(columns), rows>;
  using Tile = typename Block::Tile;
  const Block block{block_shared()};
  const Tile tile = block.tile();
  const Turns turns{block_index(), num_blocks()};
  const auto load = [&](const Work& work, int step, int stage) {
    tile::load_step(tile, args.a, args.b, work.at.row * Tile::kRows, work.at.column * Tile::kColumns,
                    work.steps.first + step, stage);
  };
  if (thread_index() == 0) tile.ring.initialise(tile.kReadingWarps);
  block_sync();
  int loaded = 0;
  if (thread_index() == 0) loaded = tile::load_first<Tile, 1>(args.grid, turns, load);
  if (args.grid.splits > 1) cluster_arrive<Order::relaxed>();
  OwnWaits waits;
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(waits, args.view, barrier, parity);
  };
  const int warpgroup = thread_index() / 128;
  if (warpgroup == 0) {
    reduce_registers<kLoaderRegisters>();
    if (warp_index() == 0) {
      warp_sync();  // lane 0 has been copying
      group_sync(kReady, kReadyThreads);
      if (thread_index() == 0) tile::load_role(tile, args.grid, turns, loaded, load, wait);
    } else if (thread_index() == 32) {
      tensor_prefetch(args.out);
      keep_call(args);
    }
    if (args.grid.splits > 1) {  // all threads of the cluster meet in its barrier; Finisher::exchange()
      cluster_wait();
      cluster_arrive<Order::relaxed>();
      cluster_wait();
    }
  } else {
    raise_registers<kMultiplierRegisters>();
    group_sync(kReady, kReadyThreads);
    multiply_and_store<swapped>(args, block, warpgroup - 1, turns, wait);
  }
  report(waits, args.view, args.slot, farwarp::gemm::kSiteStage);
}

}  // namespace farwarp::FARWARP_TARGET::gemm
