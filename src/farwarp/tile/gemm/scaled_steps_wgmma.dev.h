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

  /// What a step's sums are multiplied by: of the thread's upper and lower row, and of each part of the columns. Nobody
  /// multiplies them before they are used, or the thread would wait for the loads.
  struct Step {
    float of_rows[2], of_columns[parts];
    FARWARP_DEVICE float factor(int part, int half) const { return multiply(of_rows[half], of_columns[part]); }
  };
  FARWARP_DEVICE Step read(int step) const {
    Step scales;
#pragma unroll
    for (int half = 0; half < 2; ++half) scales.of_rows[half] = scale(of_x_, x_[half], step);
#pragma unroll
    for (int part = 0; part < parts; ++part)
      scales.of_columns[part] = of_w_.scales != nullptr ? scale(of_w_, w_[part], step) : 1.0f;
    return scales;
  }

 private:
  FARWARP_DEVICE static float scale(const ScaleStrides& of, int first, int step) {
    return load(Global<const float>(of.scales) + (first + step * static_cast<int>(of.step_stride)));
  }

  const ScaleStrides &of_x_, &of_w_;
  int w_[parts], x_[2];
};

/// A multiplier's sums of e4m3 operands. Stages are uniform(): ptxas then computes descriptors in uniform registers.
template <class Tile, int parts, class WaitBarrier>
class ScaledSteps {
 public:
  FARWARP_DEVICE ScaledSteps(const Tile& tile, int multiplier, const StepScales<parts>& scales,
                             float (&totals)[Tile::kSums], RingPosition<Tile::kStages>& at, const WaitBarrier& wait)
      : tile_(tile),
        first_row_byte_(uniform(multiplier) * 64 * kSwizzleRowBytes),
        scales_(scales),
        totals_(totals),
        at_(at),
        oldest_(at),
        wait_(wait) {
#pragma unroll
    for (int i = 0; i < Tile::kSums; ++i) totals_[i] = 0;
  }

  /// [warpgroup] Each step's sums are added before the next step's products start. Scales are read a step ahead.
  FARWARP_DEVICE void one_by_one(int first, int count) {
    float sums[Tile::kSums];
    Scales next = scales_.read(first);
    for (int step = 0; step < count; ++step) {
      start(sums);
      const Scales now = next;
      if (step + 1 < count) next = scales_.read(first + step + 1);
      add<0>(sums, now);
    }
  }

  /// [warpgroup] A step's products run while the sums of the step before are added. For one multiplier, which has
  /// registers for two sets of sums, and nobody to use the matrix unit meanwhile.
  FARWARP_DEVICE void overlapped(int first, int count) {
    float even[Tile::kSums], odd[Tile::kSums];
    start(even);
    Scales of_even = scales_.read(first), of_odd;
    int step = 1;
    for (; step + 1 < count; step += 2) {
      start(odd);
      of_odd = scales_.read(first + step);
      add<1>(even, of_even);
      start(even);
      of_even = scales_.read(first + step + 1);
      add<1>(odd, of_odd);
    }
    if (step < count) {
      start(odd);
      of_odd = scales_.read(first + step);
      add<1>(even, of_even);
      add<0>(odd, of_odd);
    } else {
      add<0>(even, of_even);
    }
  }

 private:
  using Scales = typename StepScales<parts>::Step;

  /// Starts the products of the next stage's step.
  FARWARP_DEVICE void start(float (&sums)[Tile::kSums]) {
    const int stage = uniform(at_.stage);
    wait_(tile_.ring.full(stage), at_.parity);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSwizzleRowBytes; k += 32)
      wgmma<Fp8, Tile::kColumns>(sums, tile_.left(stage) + first_row_byte_, tile_.right(stage), k, k > 0);
    wgmma_commit();
    at_.advance();
  }

  /// Waits for the sums of the oldest step, after which `later` others have been started, gives its stage back, and
  /// adds them.
  template <int later>
  FARWARP_DEVICE void add(float (&sums)[Tile::kSums], const Scales& scales) {
    constexpr int kPartSums = Tile::kSums / parts;
    const int stage = uniform(oldest_.stage);
    wgmma_wait_sums<later>(sums);
    if (lane_index() == 0) mbarrier_arrive(tile_.ring.empty(stage));
    oldest_.advance();
    float factors[parts][2];
#pragma unroll
    for (int i = 0; i < 2 * parts; ++i) factors[i / 2][i % 2] = scales.factor(i / 2, i % 2);
#pragma unroll
    for (int i = 0; i < Tile::kSums; ++i)
      totals_[i] = fused_multiply_add(sums[i], factors[i / kPartSums][i / 2 % 2], totals_[i]);
  }

  const Tile& tile_;
  int first_row_byte_;
  const StepScales<parts>& scales_;
  float (&totals_)[Tile::kSums];
  RingPosition<Tile::kStages>& at_;
  RingPosition<Tile::kStages> oldest_;
  const WaitBarrier& wait_;
};

/// [warpgroup] As multiply_steps(), of e4m3 operands: steps `first` to `first` + `count` - 1 of K, 128 each.
template <class Tile, int parts, class WaitBarrier>
FARWARP_DEVICE void multiply_scaled_steps(const Tile& tile, int multiplier, int first, int count,
                                          const StepScales<parts>& scales,
                                          float (&totals)[Tile::kRowBlocks][Tile::kSums],
                                          RingPosition<Tile::kStages>& at, const WaitBarrier& wait) {
  static_assert(Tile::kRowBlocks == 1);
  ScaledSteps<Tile, parts, WaitBarrier> steps(tile, multiplier, scales, totals[0], at, wait);
  if constexpr (Tile::kMultipliers == 1) {
    steps.overlapped(first, count);
  } else {
    steps.one_by_one(first, count);
  }
}

}  // namespace farwarp::FARWARP_TARGET::tile
