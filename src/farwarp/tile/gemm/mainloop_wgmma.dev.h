// The main loop on Hopper: one thread copies K steps of both operands into a ring of stages, two warpgroups multiply them.
//
//   loader     wait empty[s] -> expect bytes, copy A and B (tensor copies, 128-byte swizzle) -> full[s]
//   multiplier wait full[s] -> 4 wgmma of k = 16 -> the previous step's are done: arrive at its empty[s]
//
// One step's instructions stay in flight while the next step's are issued, so the matrix unit never waits for a barrier's trip.
#pragma once

#include "farwarp/base/swizzle.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/tile/gemm/ring.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

/// A tile of `rows` x `columns`: rows of A by rows of B, both K-major, T = Half or Bf16.
template <class T, int columns, int stages, int rows>
struct WgmmaTile {
  using Element = T;
  static constexpr int kRows = rows;
  static constexpr int kColumns = columns;
  static constexpr int kStages = stages;
  static constexpr int kStepDepth = 64;                      ///< elements of K: one swizzled row
  static constexpr int kMultipliers = 2;                     ///< warpgroups, which share A's rows
  static constexpr int kBlocks = kRows / kMultipliers / 64;  ///< of 64 rows, for each of them
  static constexpr int kReadingWarps = 4 * kMultipliers;
  static constexpr int kLeftBytes = kRows * kSwizzleRowBytes;
  static constexpr int kRightBytes = kColumns * kSwizzleRowBytes;
  static constexpr int kStageBytes = kLeftBytes + kRightBytes;
  static constexpr int kSums = kColumns / 2;  ///< of each thread of a multiplying warpgroup, for a block

  Shared<std::byte> memory;  ///< kStages * kStageBytes, 1024-byte aligned
  Ring<stages> ring;

  FARWARP_DEVICE Shared<std::byte> left(int stage) const { return memory + stage * kStageBytes; }
  FARWARP_DEVICE Shared<std::byte> right(int stage) const { return memory + (stage * kStageBytes + kLeftBytes); }
};

/// [thread] Starts the copies of step `step` of the rows from `row` of `a` and from `column` of `b` into the stage, which is free.
template <class Tile>
FARWARP_DEVICE void load_step(const Tile& tile, const TensorMap& a, const TensorMap& b, int row, int column, int step,
                              int stage) {
  mbarrier_arrive_expect(tile.ring.full(stage), Tile::kStageBytes);
  tensor_load(tile.left(stage), a, row, step * Tile::kStepDepth, tile.ring.full(stage));
  tensor_load(tile.right(stage), b, column, step * Tile::kStepDepth, tile.ring.full(stage));
}

/// [warpgroup] Multiplier number `multiplier`'s part: sums[64 x columns] of each block of its rows over `count` steps. A wait that gives up is
/// passed over: what comes out of an aborted call counts for nothing, and a way out of the loop that only some threads may take
/// makes ptxas wait for each wgmma before the next.
template <class Tile, class Wait>
FARWARP_DEVICE void multiply_steps(const Tile& tile, int multiplier, int count,
                                   float (&sums)[Tile::kBlocks][Tile::kSums], RingPosition<Tile::kStages>& at,
                                   const Wait& wait) {
  constexpr int kBlockBytes = 64 * kSwizzleRowBytes;
  const int first_row_byte = multiplier * Tile::kBlocks * kBlockBytes;
  int previous = -1;
  for (int step = 0; step < count; ++step) {
    wait(tile.ring.full(at.stage), at.parity);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tile::kStepDepth; k += 16) {
#pragma unroll
      for (int block = 0; block < Tile::kBlocks; ++block) {
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
  for (int block = 0; block < Tile::kBlocks; ++block) wgmma_wait_all(sums[block]);
  if (lane_index() == 0) mbarrier_arrive(tile.ring.empty(previous));
}

}  // namespace farwarp::FARWARP_TARGET::tile
