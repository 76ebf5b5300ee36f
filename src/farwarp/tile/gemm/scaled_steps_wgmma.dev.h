// The main loop on Hopper for e4m3 operands with scales: multiply_steps() of mainloop_wgmma.dev.h, whose sums of 128 of
// K are scaled and added to sums of full fp32 precision. The matrix unit alone keeps about 14 bits of a sum
// (base/fp8_sum.h). The recipe is DeepSeek-V3's (arXiv 2412.19437, section 3.3.2).
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"
#include "farwarp/tile/gemm/scales.h"

namespace farwarp::FARWARP_TARGET::tile {

/// The scales that a thread needs: of its two rows of a block of 64 rows, and of `parts` equal parts of the tile's
/// columns. In a step all columns of a part have one scale. Offsets have 32 bits: 2^31 scales would be of 256 GB.
template <int parts = 1>
class StepScales {
 public:
  /// `row`: of x, the first of the multiplier's 64; rows from `rows` on are not read. `of_w.scales` may be null: the
  /// columns have none. `of_columns`: offsets of each part's scale of the first step.
  FARWARP_DEVICE StepScales(const ScaleStrides& of_x, int row, int rows, const ScaleStrides& of_w,
                            const int (&of_columns)[parts])
      : of_x_(of_x), of_w_(of_w) {
    const int upper = row + wgmma_sum(thread_index() % 128, 0).row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int wanted = upper + 8 * half;
      x_[half] = (wanted < rows ? wanted : rows - 1) * static_cast<int>(of_x.row_stride);
    }
#pragma unroll
    for (int part = 0; part < parts; ++part) w_[part] = of_columns[part];
  }

  /// The factors of the sums of step `step` of K: of the thread's upper row, and of its lower one.
  FARWARP_DEVICE void read(int step, float (&factors)[parts][2]) const {
    float of_rows[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) of_rows[half] = scale(of_x_, x_[half], step);
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const float of_columns = of_w_.scales != nullptr ? scale(of_w_, w_[part], step) : 1.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) factors[part][half] = multiply(of_rows[half], of_columns);
    }
  }

 private:
  FARWARP_DEVICE static float scale(const ScaleStrides& of, int first, int step) {
    return load(Global<const float>(of.scales) + (first + step * static_cast<int>(of.step_stride)));
  }

  const ScaleStrides &of_x_, &of_w_;
  int w_[parts], x_[2];
};

/// Two multipliers take turns to start their products: one's run while the other adds its sums. Without turns both wait
/// for both's products, and then both add. A multiplier has one Turn for all its works. Numbers of group_sync():
/// multiplier m waits at kFirst + m.
template <int multipliers>
class Turn {
 public:
  static constexpr int kFirst = 1 + 2;  // after those of BoxWriters

  FARWARP_DEVICE explicit Turn(int multiplier) : multiplier_(multiplier) {
    if (multipliers == 2 && multiplier == 1) give();
  }
  FARWARP_DEVICE void take() const {
    if (multipliers == 2) group_sync(kFirst + multiplier_, 256);
  }
  FARWARP_DEVICE void give() const {
    if (multipliers == 2) group_arrive(kFirst + 1 - multiplier_, 256);
  }
  /// After all works: takes the last turn that is given.
  FARWARP_DEVICE void end() const {
    if (multiplier_ == 0) take();
  }

 private:
  int multiplier_;
};

/// [warpgroup] As multiply_steps(), of e4m3 operands: steps `first` to `first` + `count` - 1 of K, 128 each. All
/// multipliers call it for the same steps of the same works.
template <class Tile, int parts, class WaitBarrier>
FARWARP_DEVICE void multiply_scaled_steps(const Tile& tile, int multiplier, const Turn<Tile::kMultipliers>& turn,
                                          int first, int count, const StepScales<parts>& scales,
                                          float (&totals)[Tile::kRowBlocks][Tile::kSums],
                                          RingPosition<Tile::kStages>& at, const WaitBarrier& wait) {
  static_assert(Tile::kRowBlocks == 1);
  constexpr int kPartSums = Tile::kSums / parts;
  const int first_row_byte = multiplier * 64 * kSwizzleRowBytes;
  float sums[Tile::kSums], next[parts][2];
  scales.read(first, next);
#pragma unroll
  for (int i = 0; i < Tile::kSums; ++i) totals[0][i] = 0;
  for (int step = 0; step < count; ++step) {
    wait(tile.ring.full(at.stage), at.parity);
    turn.take();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSwizzleRowBytes; k += 32) {
      wgmma<Fp8, Tile::kColumns>(sums, tile.left(at.stage) + first_row_byte, tile.right(at.stage), k, k > 0);
    }
    wgmma_commit();
    turn.give();
    float factors[parts][2];
#pragma unroll
    for (int i = 0; i < 2 * parts; ++i) factors[i / 2][i % 2] = next[i / 2][i % 2];
    if (step + 1 < count) scales.read(first + step + 1, next);  // arrives while the products run
    wgmma_wait_all(sums);
    if (lane_index() == 0) mbarrier_arrive(tile.ring.empty(at.stage));
    at.advance();
#pragma unroll
    for (int i = 0; i < Tile::kSums; ++i)
      totals[0][i] = fused_multiply_add(sums[i], factors[i / kPartSums][i / 2 % 2], totals[0][i]);
  }
}

}  // namespace farwarp::FARWARP_TARGET::tile
