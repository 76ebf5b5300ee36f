// The main loop on Hopper: one thread copies steps of both operands into a ring of stages, and one or two warpgroups
// multiply them.
//
//   loader     wait empty[s] -> expect bytes, copy A and B (tensor copies, 128-byte swizzle) -> full[s]
//   multiplier wait full[s] -> 4 wgmma of k = 16 -> wait until the previous step's are done -> arrive at that step's
//   empty
//
// One step's instructions stay in flight while the next step's are issued, so the matrix unit does not idle during the
// wait for a barrier.
#pragma once

#include "farwarp/base/swizzle.h"
#include "farwarp/substrate/device.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/tile/gemm/shape_wgmma.h"
#include "farwarp/tile/gemm/split_k.dev.h"
#include "farwarp/tile/ring.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

using namespace farwarp::tile;

// ---- one step -------------------------------------------------------------------------------------------------------

/// A tile of `rows` x `columns`: rows of A by rows of B, both K-major, T = Half or Bf16.
template <class T, int columns, int stages, int rows>
struct WgmmaTile {
  using Element = T;
  static constexpr int kRows = rows;
  static constexpr int kColumns = columns;
  static constexpr int kStages = stages;
  static constexpr int kStepDepth = 64;                         ///< elements of K: one swizzled row
  static constexpr int kMultipliers = wgmma_multipliers(rows);  ///< warpgroups; each multiplies its part of A's rows
  static constexpr int kRowBlocks = kRows / kMultipliers / 64;  ///< blocks of 64 rows of each multiplier
  static constexpr int kReadingWarps = 4 * kMultipliers;
  static constexpr int kABytes = kRows * kSwizzleRowBytes;
  static constexpr int kBBytes = kColumns * kSwizzleRowBytes;
  static constexpr int kStageBytes = kABytes + kBBytes;
  static constexpr int kSums = kColumns / 2;  ///< of each thread of a multiplier, for one block of 64 rows

  Shared<std::byte> memory;  ///< kStages * kStageBytes, 1024-byte aligned
  Ring<stages> ring;

  FARWARP_DEVICE Shared<std::byte> left(int stage) const { return memory + stage * kStageBytes; }
  FARWARP_DEVICE Shared<std::byte> right(int stage) const { return memory + (stage * kStageBytes + kABytes); }
};

/// [thread] Starts the copies of step `step` of the rows from `row` of `a` and from `column` of `b` into the stage,
/// which must be free. `bytes`: of both boxes.
template <class Tile>
FARWARP_DEVICE void load_step(const Tile& tile, const TensorMap& a, const TensorMap& b, int row, int column, int step,
                              int stage, int bytes = Tile::kStageBytes) {
  mbarrier_arrive_expect(tile.ring.full(stage), bytes);
  tensor_load(tile.left(stage), a, row, step * Tile::kStepDepth, tile.ring.full(stage));
  tensor_load(tile.right(stage), b, column, step * Tile::kStepDepth, tile.ring.full(stage));
}

/// [warpgroup] Sums `count` steps for multiplier number `multiplier`: `sums` has 64 x columns for each block of its
/// rows. The loop goes on after a wait that gave up: the results of an aborted call are not used, and a loop exit that
/// only some threads may take makes ptxas wait for each wgmma before the next.
template <class Tile, class WaitBarrier>
FARWARP_DEVICE void multiply_steps(const Tile& tile, int multiplier, int count,
                                   float (&sums)[Tile::kRowBlocks][Tile::kSums], RingPosition<Tile::kStages>& at,
                                   const WaitBarrier& wait) {
  constexpr int kBlockBytes = 64 * kSwizzleRowBytes;
  const int first_row_byte = multiplier * Tile::kRowBlocks * kBlockBytes;
  int previous = -1;
  for (int step = 0; step < count; ++step) {
    wait(tile.ring.full(at.stage), at.parity);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tile::kStepDepth; k += 16) {
#pragma unroll
      for (int block = 0; block < Tile::kRowBlocks; ++block) {
        wgmma<typename Tile::Element, Tile::kColumns>(sums[block],
                                                      tile.left(at.stage) + (first_row_byte + block * kBlockBytes),
                                                      tile.right(at.stage), k, step > 0 || k > 0);
      }
    }
    wgmma_commit();
    wgmma_wait_read<1>();
    if (previous >= 0 && lane_index() == 0) mbarrier_arrive(tile.ring.empty(previous));
    previous = at.stage;
    at.advance();
  }
#pragma unroll
  for (int block = 0; block < Tile::kRowBlocks; ++block) wgmma_wait_all(sums[block]);
  if (lane_index() == 0) mbarrier_arrive(tile.ring.empty(previous));
}

/// The `multiply` of multiply_and_finish() (epilogue_wgmma.dev.h) for multiplier number `multiplier`, if both operands
/// have the result's type.
template <class Tile, class WaitBarrier>
FARWARP_DEVICE auto unscaled_steps(const Tile& tile, int multiplier, const WaitBarrier& wait) {
  return [tile, multiplier, &wait](const Work& work, float(&sums)[Tile::kRowBlocks][Tile::kSums],
                                   RingPosition<Tile::kStages>& at) {
    multiply_steps(tile, multiplier, work.steps.count, sums, at, wait);
  };
}

// ---- a block: its shared memory, and the role of the multipliers ----------------------------------------------------

template <class T, int columns, int buffers = 2, int rows = kWgmmaRows>
struct WgmmaBlock {
  static constexpr WgmmaShared kShared{rows, columns, buffers};
  static constexpr int kBuffers = buffers;
  static constexpr int kStages = kShared.stages();
  using Tile = WgmmaTile<T, columns, kStages, rows>;
  static_assert(Tile::kStageBytes == kShared.stage_bytes() && Ring<kStages>::kBytes <= WgmmaShared::kOperatorOffset);

  Shared<std::byte> memory;

  FARWARP_DEVICE Tile tile() const { return {memory, Ring<kStages>(barriers())}; }
  /// The buffers of the multiplier's BoxWriter.
  FARWARP_DEVICE Shared<std::byte> boxes(int multiplier) const {
    return memory + (kShared.boxes() + multiplier * buffers * WgmmaShared::kBoxBytes);
  }
  /// The multipliers' warps arrive here once; the loader's thread waits here.
  FARWARP_DEVICE Shared<Mbarrier> multipliers_started() const {
    return Shared<Mbarrier>(reinterpret_cast<Mbarrier*>((barriers() + WgmmaShared::kStartOffset).raw));
  }
  /// [thread] Initialises the ring, with `fillers` arrivals at `full`, and `multipliers_started()`. One thread calls
  /// it, before a block_sync().
  FARWARP_DEVICE void initialise(int fillers = 1) const {
    mbarrier_init(multipliers_started(), Tile::kReadingWarps);
    tile().ring.initialise(Tile::kReadingWarps, fillers);
  }
  FARWARP_DEVICE Shared<std::uint32_t> arrived_last(int multiplier) const {
    return Shared<std::uint32_t>(
        reinterpret_cast<std::uint32_t*>((barriers() + WgmmaShared::kArrivedLast + 4 * multiplier).raw));
  }

 protected:
  FARWARP_DEVICE Shared<std::byte> barriers() const { return memory + kShared.barriers(); }
};

/// [warpgroup] Multiplies 64 rows of each of the block's tiles. Calls `finish(work, sums)` for every work; if K is
/// split, only in the block that arrives last, with the sums of all splits. The other blocks call `skip()`.
/// `arrived_last` is the warpgroup's own.
template <class Tile, class WaitBarrier, class Finish, class Skip>
FARWARP_DEVICE void multiply_role(const Tile& tile, int multiplier, const TileGrid& grid, Turns turns,
                                  const SplitSpace& space, Shared<std::uint32_t> arrived_last, const WaitBarrier& wait,
                                  const Finish& finish, const Skip& skip) {
  RingPosition<Tile::kStages> at;
  for (int number = turns.first; number < grid.works(); number += turns.stride) {
    const Work work = work_at(grid, number);
    static_assert(Tile::kRowBlocks == 1);
    float all[1][Tile::kSums];
    const TraceStart multiplied = trace_start();
    multiply_steps(tile, multiplier, work.steps.count, all, at, wait);
    trace_warp(multiplied, TraceWork::kMultiply, work.tile);
    const TraceStart stored = trace_start();
    const auto& sums = all[0];
    if constexpr (Tile::kColumns <= kMaxSplitColumns) {
      if (grid.splits > 1) {
        float total[Tile::kSums];
        const SplitPart part{2 * work.tile + multiplier, work.split, thread_index() % 128, arrived_last};
        const auto sync = [&] { group_sync(1 + multiplier, 128); };
        if (sum_splits<128>(space, part, sync, sums, total)) {
          finish(work, total);
          trace_warp(stored, TraceWork::kStore, work.tile);
        } else {
          skip();
        }
        continue;
      }
    }
    finish(work, sums);
    trace_warp(stored, TraceWork::kStore, work.tile);
  }
}

// ---- the role of the loader -----------------------------------------------------------------------------------------

/// [thread] Starts the copies of up to `most` steps of the block's first work and returns of how many.
/// `load(work, step, stage)` starts the copies of one step of a work into a free stage.
template <class Tile, int most = Tile::kStages, class Load>
FARWARP_DEVICE int load_first(const TileGrid& grid, Turns turns, const Load& load) {
  const Work work = work_at(grid, turns.first);
  const int count = work.steps.count < most ? work.steps.count : most;
  for (int i = 0; i < count; ++i) load(work, i, i);
  return count;
}

/// [thread] Copies the operands of all the block's works, as far ahead as there are stages. load_first() has started
/// the first `loaded` steps. Returns when the last step has been multiplied, or a wait gave up.
template <class Tile, class Load, class WaitBarrier>
FARWARP_DEVICE void load_role(const Tile& tile, const TileGrid& grid, Turns turns, int loaded, const Load& load,
                              const WaitBarrier& wait) {
  RingPosition<Tile::kStages> at, last;
  for (int i = 0; i < loaded; ++i) {
    last = at;
    at.advance();
  }
  for (int number = turns.first; number < grid.works(); number += turns.stride) {
    const Work work = work_at(grid, number);
    const TraceStart start = trace_start();
    for (int i = loaded; i < work.steps.count; ++i) {
      if (!wait(tile.ring.empty(at.stage), at.parity ^ 1)) return;  // in the first round every stage is empty
      load(work, i, at.stage);
      last = at;
      at.advance();
    }
    trace_work(start, TraceWork::kLoad, work.tile);
    loaded = 0;
  }
  wait(tile.ring.empty(last.stage), last.parity);
}

}  // namespace farwarp::FARWARP_TARGET::tile
