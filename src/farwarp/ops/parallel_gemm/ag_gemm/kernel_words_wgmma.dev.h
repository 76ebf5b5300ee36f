// ag-gemm on Hopper, x as words. Comm blocks send this rank's x, the others multiply. The warpgroups of a block that
// multiplies:
//
//   the first     one thread copies w into the stages; three warps clear the inbox of the previous call
//   1 or 2 more   poll x and store it into the stages
//   2 more        multiply and store, as in gemm
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/word_loader.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using namespace farwarp::ag_gemm;

/// Warps and registers of each role. Eight warps load x; with four, instruction issue bounds a step (MEASURED.md,
/// "Floor"). Tiles wider than 64 columns leave registers for only four.
template <int columns, bool swap_ab>
struct WordRoles {
  static constexpr int kThreads = words_threads(columns);
  static constexpr int kLoadingGroups = kThreads / 128 - 3;  ///< warpgroups
  static constexpr int kLoadingWarps = 4 * kLoadingGroups;
  static constexpr int kSharing = swap_ab ? 1 : 2;  ///< loading warps that share the rows of a step
  static constexpr int kFirstMultiplier = 1 + kLoadingGroups;
  // Registers of a thread. The count at launch is a multiple of 8.
  static constexpr int kLaunchedRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kCopyingRegisters = columns <= 64 ? 24 : 32;
  static constexpr int kMultiplyingRegisters = columns <= 64 ? 112 : columns == 128 ? 176 : 168;
  static constexpr int kLoadingRegisters = columns <= 64 ? 112 : columns == 128 ? 128 : 144;
  static_assert(kCopyingRegisters + kLoadingGroups * kLoadingRegisters + 2 * kMultiplyingRegisters <=
                    kLaunchedRegisters * (3 + kLoadingGroups),
                "the taking would wait for ever");
  /// Warps that read the call's cells: those that clear and those that load x.
  static constexpr int kCallReaders = 3 + kLoadingWarps;
};

template <class T, int columns>
struct WordsBlock
    : tile::WgmmaBlock<T, columns, farwarp::tile::wgmma_boxes(columns, farwarp::tile::kAllGatherBoxesOf256)> {
  using Base = tile::WgmmaBlock<T, columns, farwarp::tile::wgmma_boxes(columns, farwarp::tile::kAllGatherBoxesOf256)>;

  /// Each warp that has read the call's cells arrives here. The thread that leaves the call for the block waits here.
  FARWARP_DEVICE Shared<Mbarrier> call_read() const {
    return Shared<Mbarrier>(reinterpret_cast<Mbarrier*>((this->barriers() + tile::WgmmaShared::kOperatorOffset).raw));
  }
  /// [thread] One thread, before a block_sync().
  FARWARP_DEVICE void initialise(int fillers, int call_readers) const {
    mbarrier_init(call_read(), call_readers);
    Base::initialise(fillers);
  }
};

/// [warpgroup] Changes a thread's registers from `launched`, the count at launch, to `registers`.
template <int registers, int launched>
FARWARP_DEVICE void change_registers() {
  if constexpr (registers < launched) lower_registers<registers>();
  if constexpr (registers > launched) raise_registers<registers>();
}

/// [thread] Copies w. w was written before the call, so this reads none of the call's cells.
template <bool swap_ab, class Block, class WaitBarrier>
FARWARP_DEVICE void copy_w_role(const Args& args, const Block& block, const WaitBarrier& wait) {
  using Tile = typename Block::Tile;
  const Tile tile = block.tile();
  const Turns turns = turns_of(args);
  const auto load = [&](const Work& work, int step, int stage) {
    const int row = place_of<Tile, swap_ab>(args, work).w_row;
    mbarrier_arrive_expect(tile.ring.full(stage), swap_ab ? Tile::kABytes : Tile::kBBytes);
    tensor_load(swap_ab ? tile.left(stage) : tile.right(stage), args.w, row,
                (work.steps.first + step) * Tile::kStepDepth, tile.ring.full(stage));
  };
  const int loaded = tile::load_first<Tile, 1>(args.grid, turns, load);
  // As in gemm: the other copies wait until the multipliers have started. Otherwise the copies delay the fetch of their
  // instructions by microseconds.
  wait(block.multipliers_started(), 0);
  tile::load_role(tile, args.grid, turns, loaded, load, wait);
}

/// [warp] Reads the call's cells and arrives at call_read(). One thread of the block leaves the call when all readers
/// have arrived.
template <class Block>
FARWARP_DEVICE Call read_call_of(const Args& args, const Block& block) {
  std::uint32_t phase = 0;
  const Call call = read_call(args.view, args.slot, phase);
  warp_sync();
  if (lane_index() == 0) mbarrier_arrive(block.call_read());
  return call;
}

/// [warp] Clears its part of the previous call's inbox. Warps 1 to 3 of the block do this.
template <class Block>
FARWARP_DEVICE void clear_role(const Args& args, const Block& block) {
  const Call call = read_call_of(args, block);
  if (!call.live) return;
  const Turns turns = turns_of(args);
  clear_inbox(args, call.epoch, turns.first * 3 + warp_index() - 1, turns.stride * 3);
}

/// [warpgroup] Loads x. The first loading thread leaves the call for the block when its own steps are in the stages and
/// all readers have read the cells. It has arrived at the cluster's barrier before that, so no other block waits for it
/// to leave.
template <bool swap_ab, class Roles, class Block, class WaitBarrier>
FARWARP_DEVICE void load_x_role(const Args& args, const Block& block, const WaitBarrier& wait) {
  using Tile = typename Block::Tile;
  Call call = read_call_of(args, block);
  WordLoader<Tile, swap_ab, Roles::kLoadingWarps, Roles::kSharing, WaitBarrier> loader(args, block.tile(),
                                                                                       warp_index() - 4, call, wait);
  loader.run();
  if (args.grid.splits > 1) {
    cluster_wait();
    cluster_arrive<Order::relaxed>();
  }
  if (thread_index() == 128) {
    wait(block.call_read(), 0);
    leave_call(call, 0);  // also if the World is aborted: recover() sets the cells
  }
  if (args.grid.splits > 1) cluster_wait();
}

/// [block] A block that multiplies.
template <class T, int columns, bool swap_ab>
FARWARP_DEVICE void multiply_words(const Args& args) {
  using Roles = WordRoles<columns, swap_ab>;
  constexpr int kFillers =
      1 + Roles::kSharing;  // arrivals at `full`: the thread that copies w, and the warps that store x
  const WordsBlock<T, columns> block{block_shared()};
  if (thread_index() == 0) block.initialise(kFillers, Roles::kCallReaders);
  block_sync();
  if (args.grid.splits > 1) cluster_arrive<Order::relaxed>();
  BlockWaits waits;
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(waits, args.view, barrier, parity);
  };
  const int warpgroup = thread_index() / 128;
  const bool loads = warpgroup == 1 || (Roles::kLoadingGroups == 2 && warpgroup == 2);  // with "<" ptxas spills
  if (warpgroup == 0) {
    lower_registers<Roles::kCopyingRegisters>();
    if (thread_index() == 0) copy_w_role<swap_ab>(args, block, wait);
    if (thread_index() == 32) tensor_prefetch(args.out);
    if (warp_index() > 0) clear_role(args, block);
    if (args.grid.splits > 1) tile::attend_cluster_sum();
  } else if (loads) {
    change_registers<Roles::kLoadingRegisters, Roles::kLaunchedRegisters>();
    load_x_role<swap_ab, Roles>(args, block, wait);
  } else {
    change_registers<Roles::kMultiplyingRegisters, Roles::kLaunchedRegisters>();
    if (lane_index() == 0) mbarrier_arrive(block.multipliers_started());
    multiplier_role<swap_ab>(args, block, warpgroup - Roles::kFirstMultiplier, wait);
  }
  report_expired(waits, args.view, args.slot, kSiteStage);
}

template <class T, int columns, bool swap_ab>
FARWARP_DEVICE void ag_gemm_words(const Args& args) {
  if (block_index() < args.comm_blocks) {
    comm_block_words(args);
  } else {
    multiply_words<T, columns, swap_ab>(args);
  }
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
