// ag-gemm on Hopper, x as words: blocks that send this rank's x, and blocks that multiply. Of these
//
//   warpgroup 0   a thread copies w into the stages; three warps empty the inbox of the call before
//   warpgroup 1   polls x and stores it into the stages
//   2 and 3       multiply and store, as in gemm
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/word_loader.dev.h"
#include "farwarp/tile/gemm/loader_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

/// Registers of a thread in each role; 512 in all: 128 at launch in each warpgroup. How many warps load a step of x, and how many steps
/// each at a time: as many as the registers hold, 16 KB to 64 KB on their way in all. Wide tiles leave few to the loaders.
template <int columns, bool swapped>
struct WordRoles {
  static constexpr int kCopying = columns == 64 ? 24 : 32;
  static constexpr int kMultiplying = swapped ? 152 : columns == 64 ? 152 : columns == 128 ? 176 : 168;
  static constexpr int kLoading = 512 - kCopying - 2 * kMultiplying;
  static constexpr int kWarps = swapped || columns == 64 ? 1 : 2;
  static constexpr int kBatch = swapped ? 2 : 1;
};

/// [warpgroup] From the 128 registers of a thread at launch.
template <int registers>
FARWARP_DEVICE void change_registers() {
  if constexpr (registers < 128) reduce_registers<registers>();
  if constexpr (registers > 128) raise_registers<registers>();
}

inline constexpr int kCallBarrier = 3;             ///< number of the barrier of those who read the call,
inline constexpr int kCallThreads = 3 * 32 + 128;  ///< which are the warps that clear and those that load x

/// [thread] Copies w, which was there before the call; nothing of the call is read.
template <bool swapped, class Block, class Wait>
FARWARP_DEVICE void copy_w_role(const Args& args, const Block& block, const Wait& wait) {
  using Tile = typename Block::Tile;
  const Tile tile = block.tile();
  const Turns turns = turns_of(args);
  const auto load = [&](const Work& work, int step, int stage) {
    const int row = place_of<Tile, swapped>(args, work).w_row;
    mbarrier_arrive_expect(tile.ring.full(stage), swapped ? Tile::kLeftBytes : Tile::kRightBytes);
    tensor_load(swapped ? tile.left(stage) : tile.right(stage), args.w, row,
                (work.steps.first + step) * Tile::kStepDepth, tile.ring.full(stage));
  };
  const int loaded = tile::load_first<Tile, 1>(args.grid, turns, load);
  // As in gemm: behind the copies of all stages of all blocks, the multipliers' instructions would come microseconds later.
  wait(block.meeting(), 0);
  tile::load_role(tile, args.grid, turns, loaded, load, wait);
}

/// [warp] One of the three beside the warp that copies w.
FARWARP_DEVICE void clear_role(const Args& args) {
  std::uint32_t stage = 0;
  const Call call = read_call(args.view, args.slot, stage);
  group_sync(kCallBarrier, kCallThreads);
  if (!call.live) return;
  const Turns turns = turns_of(args);
  clear_inbox(args, call.epoch, turns.first * 3 + warp_index() - 1, turns.stride * 3);
}

/// [warpgroup] Loads x and keeps the call for its block, whose other readers have met it when the call is left. Of a cluster nobody waits
/// for this block's leaving.
template <bool swapped, class Roles, class Block, class Wait>
FARWARP_DEVICE void load_x_role(const Args& args, const Block& block, const Wait& wait) {
  using Tile = typename Block::Tile;
  std::uint32_t stage = 0;
  Call call = read_call(args.view, args.slot, stage);
  group_sync(kCallBarrier, kCallThreads);
  WordLoader<Tile, swapped, Roles::kWarps, Roles::kBatch, Wait> loader(args, block.tile(), call, wait);
  loader.run();
  if (args.grid.splits > 1) {
    cluster_wait();
    cluster_arrive<Order::relaxed>();
  }
  if (thread_index() == 128) leave_call(call, 0);  // of an aborted World, too: recover() sets the cells
  if (args.grid.splits > 1) cluster_wait();
}

/// [block] A block that multiplies.
template <class T, int columns, bool swapped>
FARWARP_DEVICE void multiply_words(const Args& args) {
  constexpr int kBoxes = farwarp::tile::wgmma_boxes(columns, farwarp::tile::kAllGatherWidestBoxes);
  using Roles = WordRoles<columns, swapped>;
  constexpr int kFillers = 1 + Roles::kWarps;  // the thread that copies w, and the warps that store x
  const tile::WgmmaBlock<T, columns, kBoxes> block{block_shared()};
  if (thread_index() == 0) block.initialise(kFillers);
  block_sync();
  if (args.grid.splits > 1) cluster_arrive<Order::relaxed>();
  OwnWaits waits;
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(waits, args.view, barrier, parity);
  };
  const int warpgroup = thread_index() / 128;
  if (warpgroup == 0) {
    reduce_registers<Roles::kCopying>();
    if (thread_index() == 0) copy_w_role<swapped>(args, block, wait);
    if (thread_index() == 32) tensor_prefetch(args.out);
    if (warp_index() > 0) clear_role(args);
    if (args.grid.splits > 1) tile::attend_exchange();
  } else if (warpgroup == 1) {
    change_registers<Roles::kLoading>();
    load_x_role<swapped, Roles>(args, block, wait);
  } else {
    change_registers<Roles::kMultiplying>();
    if (lane_index() == 0) mbarrier_arrive(block.meeting());
    multiply_and_store<swapped>(args, block, warpgroup - 2, wait);
  }
  report(waits, args.view, args.slot, farwarp::ag_gemm::kSiteStage);
}

template <class T, int columns, bool swapped>
FARWARP_DEVICE void ag_gemm_words(const Args& args) {
  if (block_index() < args.communicators) {
    communicate_words(args);
  } else {
    multiply_words<T, columns, swapped>(args);
  }
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
