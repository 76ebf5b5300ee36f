// The main loop on Hopper for e4m3 operands with scales: multiply_steps() of mainloop_wgmma.dev.h, whose sums of 128 of
// K are scaled and added to sums of full fp32 precision. The matrix unit alone keeps about 14 bits of a sum
// (base/fp8_sum.h). The recipe is DeepSeek-V3's (arXiv 2412.19437, section 3.3.2).
//
// A multiplier waits for its step's products before it adds them; meanwhile the other multiplier's run.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"
#include "farwarp/tile/gemm/scales.h"

namespace farwarp::FARWARP_TARGET::tile {

/// The scales that a thread needs: of its two rows of a block of 64 rows, and of the tile's columns.
class StepScales {
 public:
  /// `row`: of x, the first of the multiplier's 64; rows from `rows` on are not read. `column`: of y, the tile's first;
  /// all columns of the tile have one scale in a step, or none if of_w.scales is null.
  FARWARP_DEVICE StepScales(const ScaleStrides& of_x, const ScaleStrides& of_w, int row, int rows, int column)
      : x_step_(of_x.step_stride),
        w_step_(of_w.step_stride),
        w_(Global<const float>(of_w.scales) + column / kScaledDepth * of_w.row_stride) {
    const int upper = row + wgmma_sum(thread_index() % 128, 0).row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int wanted = upper + 8 * half;
      x_[half] = Global<const float>(of_x.scales) + (wanted < rows ? wanted : rows - 1) * of_x.row_stride;
    }
  }

  /// The factors of the sums of step `step` of K: of the thread's upper row, and of its lower one.
  FARWARP_DEVICE void read(int step, float (&factors)[2]) const {
    const float of_columns = w_ ? load(w_ + step * w_step_) : 1.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) factors[half] = multiply(load(x_[half] + step * x_step_), of_columns);
  }

 private:
  std::int64_t x_step_, w_step_;
  Global<const float> w_;
  Global<const float> x_[2];
};

/// [warpgroup] As multiply_steps(), of e4m3 operands: steps `first` to `first` + `count` - 1 of K, 128 each.
template <class Tile, class WaitBarrier>
FARWARP_DEVICE void multiply_scaled_steps(const Tile& tile, int multiplier, int first, int count,
                                          const StepScales& scales, float (&totals)[Tile::kRowBlocks][Tile::kSums],
                                          RingPosition<Tile::kStages>& at, const WaitBarrier& wait) {
  static_assert(Tile::kRowBlocks == 1);
  const int first_row_byte = multiplier * 64 * kSwizzleRowBytes;
  float sums[Tile::kSums], next[2];
  scales.read(first, next);
#pragma unroll
  for (int i = 0; i < Tile::kSums; ++i) totals[0][i] = 0;
  for (int step = 0; step < count; ++step) {
    wait(tile.ring.full(at.stage), at.parity);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSwizzleRowBytes; k += 32) {
      wgmma<Fp8, Tile::kColumns>(sums, tile.left(at.stage) + first_row_byte, tile.right(at.stage), k, k > 0);
    }
    wgmma_commit();
    const float factors[2] = {next[0], next[1]};
    if (step + 1 < count) scales.read(first + step + 1, next);  // arrives while the products run
    wgmma_wait_all(sums);
    if (lane_index() == 0) mbarrier_arrive(tile.ring.empty(at.stage));
    at.advance();
#pragma unroll
    for (int i = 0; i < Tile::kSums; ++i) totals[0][i] = fused_multiply_add(sums[i], factors[i / 2 % 2], totals[0][i]);
  }
}

}  // namespace farwarp::FARWARP_TARGET::tile
