// Stores a wave's sums from registers to memory, 16 bytes a lane. Two stores of the wave write 32 rows of 64 bytes.
#pragma once

#include "farwarp/tile/gemm/bias.dev.h"
#include "farwarp/tile/gemm/mainloop_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

using namespace farwarp::tile;

/// The size of the result and the bias that is added to it. `columns` is a multiple of 8.
template <class T>
struct Extent {
  int rows;
  int columns;
  Global<const T> bias;  ///< [columns], or null
};

/// The result as a matrix. `pitch`: elements from one row to the next. Rows are 16-byte aligned.
template <class T>
struct Result : Extent<T> {
  T* first;
  std::int64_t pitch;
};

/// [warp] Adds bias[column] to the wave's sums of the tile at (row, column) and rounds them. Calls
/// `put(row, column, eight)` for each eight neighbours of a row that lie inside the result.
template <class Tile, class Put>
FARWARP_DEVICE void round_sums(const Extent<typename Tile::Element>& out, int row, int column,
                               const float (&sums)[Tile::kSums], const Put& put) {
  using T = typename Tile::Element;
  const int first_row = row + Tile::wave_row() + mfma32_sum(lane_index(), 0).column;
  const int first_column = column + Tile::wave_column() + column_in_row(mfma32_sum(lane_index(), 0).row);
#pragma unroll
  for (int j = 0; j < 2 * Tile::kColumnFragments; ++j) {  // halves of fragments
    const int at = first_column + 16 * j;
    if (at >= out.columns) continue;
    float biases[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) biases[i] = bias_at(out.bias, at + i, out.columns);
#pragma unroll
    for (int i = 0; i < Tile::kRowFragments; ++i) {
      const int to = first_row + 32 * i;
      if (to >= out.rows) continue;
      const float* const eight = &sums[(2 * i * Tile::kColumnFragments + j) * 8];
      std::uint64_t pairs[4];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        pairs[pair] =
            round_pair<T>(add(eight[2 * pair], biases[2 * pair]), add(eight[2 * pair + 1], biases[2 * pair + 1]));
      }
      put(to, at, Vec16{pairs[1] << 32 | pairs[0], pairs[3] << 32 | pairs[2]});
    }
  }
}

/// [warp] round_sums() and stores into one matrix.
template <class Tile>
FARWARP_DEVICE void store_sums(const Result<typename Tile::Element>& out, int row, int column,
                               const float (&sums)[Tile::kSums]) {
  round_sums<Tile>(out, row, column, sums, [&](int to, int at, Vec16 eight) {
    store(Global<Vec16>(reinterpret_cast<Vec16*>(out.first + to * out.pitch + at)), eight);
  });
}

}  // namespace farwarp::FARWARP_TARGET::tile
