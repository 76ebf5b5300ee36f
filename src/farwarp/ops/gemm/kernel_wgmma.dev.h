// gemm on Hopper: persistent blocks of a warpgroup that loads and one or two that multiply and store.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"
#include "farwarp/tile/gemm/scaled_steps_wgmma.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using namespace farwarp::gemm;

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// [thread] Joins the call for its block and leaves it at once. The other threads need not wait for the cells: no work
/// here depends on the epoch or waits for a peer.
FARWARP_DEVICE void join_and_leave_call(const Args& args) {
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  if (!call.live) return;
  if (block_index() == 0) claim_call(call);
  leave_call(call, 0);
}

// Registers of a thread. All warps together may not have more than the block was launched with, or raise_registers()
// waits for ever.
inline constexpr int kLoaderRegisters = 40, kMultiplierRegisters = 232;
static_assert(128 * kLoaderRegisters + 256 * kMultiplierRegisters <= farwarp::tile::kWgmmaThreads * 168);

/// [warpgroup] The `multiply` of multiply_and_finish() for e4m3 operands.
template <class Tile, class Origin, class WaitBarrier>
FARWARP_DEVICE auto scaled_steps(const Args& args, const Tile& tile, int multiplier, const Origin& origin,
                                 const WaitBarrier& wait) {
  return [&args, tile, multiplier, &origin, &wait](const Work& work, float(&sums)[Tile::kRowBlocks][Tile::kSums],
                                                   tile::RingPosition<Tile::kStages>& at) {
    const farwarp::tile::TileIndex from = origin(work);
    const farwarp::tile::ScaleStrides& of_w = args.w_scales;
    const int of_columns[] = {from.column / farwarp::tile::kScaledDepth * static_cast<int>(of_w.row_stride)};
    const tile::StepScales<> scales(args.x_scales, from.row + 64 * multiplier, args.m, of_w, of_columns);
    tile::multiply_scaled_steps(tile, multiplier, work.steps.first, work.steps.count, scales, sums, at, wait);
    if (args.column_scales == nullptr) return;
#pragma unroll
    for (int i = 0; i < Tile::kSums; ++i) {
      const int column = from.column + farwarp::wgmma_sum(thread_index() % 128, i).column;
      if (column < args.n) sums[0][i] = multiply(sums[0][i], load(Global<const float>(args.column_scales) + column));
    }
  };
}

/// `fp8`: x and w are e4m3 with scales. Their maps have pairs of numbers as elements.
template <class T, int columns, bool swap_ab, int rows, bool fp8 = false>
FARWARP_DEVICE void gemm_wgmma(const Args& args) {
  using Block = tile::WgmmaBlock<T, columns, farwarp::tile::gemm_boxes(columns, swap_ab), rows>;
  using Tile = typename Block::Tile;
  const Block block{block_shared()};
  const Tile tile = block.tile();
  const Turns turns{block_index(), num_blocks()};
  const auto origin = [&](const Work& work) {
    return farwarp::tile::TileIndex{work.at.row * (swap_ab ? Tile::kRows : args.x_rows),
                                    work.at.column * (swap_ab ? args.x_rows : Tile::kColumns)};
  };
  const int bytes = (swap_ab ? Tile::kABytes : Tile::kBBytes) + args.x_rows * farwarp::kSwizzleRowBytes;
  const auto load = [&](const Work& work, int step, int stage) {
    const farwarp::tile::TileIndex at = origin(work);
    tile::load_step(tile, args.a, args.b, at.row, at.column, work.steps.first + step, stage, bytes);
  };
  if (thread_index() == 0) block.initialise();
  block_sync();
  int loaded = 0;
  if (thread_index() == 0) loaded = tile::load_first<Tile, 1>(args.grid, turns, load);
  if (args.grid.splits > 1) cluster_arrive<Order::relaxed>();
  BlockWaits waits;
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(waits, args.view, barrier, parity);
  };
  const int warpgroup = thread_index() / 128;
  if (warpgroup == 0) {
    if constexpr (Tile::kMultipliers > 1) lower_registers<kLoaderRegisters>();
    if (thread_index() == 0) {
      // A cold launch has to fetch its instructions, too. If the copies of all stages were started first, the main
      // loop's instructions would arrive up to 4 us later (MEASURED.md). One step's copies do not delay them; the
      // others wait until the multipliers run.
      wait(block.multipliers_started(), 0);
      tile::load_role(tile, args.grid, turns, loaded, load, wait);
    } else if (thread_index() == 32) {
      tensor_prefetch(args.out);
      tensor_prefetch(args.out_rest);
      join_and_leave_call(args);
    }
    if (args.grid.splits > 1) tile::attend_cluster_sum();
  } else {
    if constexpr (Tile::kMultipliers > 1) raise_registers<kMultiplierRegisters>();
    if (lane_index() == 0) mbarrier_arrive(block.multipliers_started());
    const auto map_of = [&](int row) -> const TensorMap& {
      return row % args.x_rows < farwarp::tile::first_box_rows(swap_ab, columns, args.grid.splits) ? args.out
                                                                                                   : args.out_rest;
    };
    const auto store = [&](const auto& multiply) {
      tile::multiply_and_store<swap_ab, true>(args, block, warpgroup - 1, turns, args.x_rows, origin, map_of, multiply);
    };
    if constexpr (fp8) {
      static_assert(!swap_ab);
      store(scaled_steps(args, tile, warpgroup - 1, origin, wait));
    } else {
      store(tile::unscaled_steps(tile, warpgroup - 1, wait));
    }
  }
  report_expired(waits, args.view, args.slot, kSiteStage);
}

}  // namespace farwarp::FARWARP_TARGET::gemm
