// The tile of the CDNA kernels and how it lies in LDS.
//
// A step's keys are `keys` rows of head_dim elements; its values are stored transposed, as head_dim rows of `keys`
// elements, because the matrix unit wants consecutive keys of one column in a lane. Rows are stored in chunks of 16
// bytes (8 elements). tile/gemm/shape_mfma.h says which lanes access LDS in the same turn, and why chunks are permuted.
//
//   keys    read as gemm reads its rows. Written 16 bytes a lane, eight lanes to half a row, or to a whole one.
//   values  read likewise. A lane writes the eight keys of a chunk for two columns, which are neighbours in memory;
//           eight lanes write eight even columns of 16, or the odd ones.
#pragma once

#include "farwarp/base/machine_shape.h"
#include "farwarp/tile/gemm/shape_mfma.h"

namespace farwarp::attention {

inline constexpr int kMfmaWaves = 8;
inline constexpr int kMfmaThreads = 64 * kMfmaWaves;
inline constexpr int kMfmaWaveQueries = 32;  ///< rows of q of a wave
inline constexpr int kMfmaQueries = kMfmaWaves * kMfmaWaveQueries;

inline constexpr int kMfmaMostPitch = 1 << 24;  ///< elements

struct MfmaShared {
  int head_dim;  ///< 64 or 128: the columns that are computed
  int keys;      ///< of a step

  constexpr int tile_bytes() const { return head_dim * keys * 2; }
  constexpr int v_tile() const { return tile_bytes(); }  ///< K's is at 0
  constexpr int total() const { return 2 * tile_bytes(); }
};

/// Row `row` of a step's keys holds this key. A lane's scores are of four times 4 rows of each 32; in this order, they
/// are of twice 8 consecutive keys, and a chunk of the values holds what eight are multiplied with.
constexpr int key_in_row(int row) { return tile::column_in_row(row); }

/// The row of the transposed values in which a column lies: the inverse of tile::column_in_row(), which exchanges two
/// bits and so is its own inverse. In this order, a lane's results are of 8 consecutive columns of out of each 16.
constexpr int row_of_column(int column) { return tile::column_in_row(column); }

/// Byte offsets of a chunk in a tile whose rows have `chunks` chunks, 8 or 16. Chunks are permuted within a line of 8.
constexpr int permuted_offset(int row, int chunk, int chunks, int permutation) {
  return (row * chunks + chunk / 8 * 8 + (chunk % 8 ^ permutation)) * 16;
}
constexpr int key_chunk_offset(int row, int chunk, int chunks) { return permuted_offset(row, chunk, chunks, row % 8); }
constexpr int value_chunk_offset(int row, int chunk, int chunks) {
  return permuted_offset(row, chunk, chunks, row % 8 ^ row / 8 % 2);
}

}  // namespace farwarp::attention
