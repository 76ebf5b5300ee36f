// The activation of a warpgroup's sums on Hopper, when a tile has as many columns of the gate as of the up projection.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/tile/activation.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

/// [warpgroup] fill_boxes() for sums of which the first half is the gate's, and the second the up projection's: of
/// their activated products. One box after the other, because the activation of all would not fit into registers.
/// `bias`: [2 n], the gate's first, or null. `columns`: of the result in the tile, from `column` on. `clamped`:
/// Activation::kClampedSwiGlu.
template <class T, int columns, class Writer, class SendBox>
FARWARP_DEVICE void fill_gated_boxes(Writer& writer, const SendBox& send_box, int row, int column, bool clamped,
                                     Global<const T> bias, int n, const float (&sums)[columns]) {
  constexpr int kBoxColumns = 64, kBoxSums = kBoxColumns / 2;
  static_assert(columns % kBoxColumns == 0);
#pragma unroll
  for (int box = 0; box < columns / kBoxColumns; ++box) {
    const int first = column + box * kBoxColumns;
    const float *const gates = &sums[box * kBoxSums], *const ups = &sums[columns / 2 + box * kBoxSums];
    float results[kBoxSums];
    if (!bias && !clamped) {  // tests for each element are slow: ops/moe_layer/MEASURED.md
#pragma unroll
      for (int i = 0; i < kBoxSums; ++i) results[i] = swiglu(gates[i], ups[i]);
    } else {
      const Global<const T> of_up = bias ? bias + n : bias;
#pragma unroll
      for (int i = 0; i < kBoxSums; ++i) {
        const int at = first + farwarp::wgmma_sum(thread_index() % 128, i).column;
        const float gate = add(gates[i], bias_at(bias, at, n)), up = add(ups[i], bias_at(of_up, at, n));
        results[i] = clamped ? clamped_swiglu(gate, up) : swiglu(gate, up);
      }
    }
    fill_boxes<T, kBoxColumns>(writer, send_box, row, first, Global<const T>(nullptr), n, results);
  }
}

}  // namespace farwarp::FARWARP_TARGET::tile
