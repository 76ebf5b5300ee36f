// Tiles of the CDNA main loop: their shapes, and how their operands lie in LDS.
//
// A stage holds `depth` elements of K of the tile's rows, as rows of 64 or 128 bytes, in chunks of 16 bytes (8
// elements). LDS has 32 banks of 4 bytes, so 128 bytes are one line of all banks: one row of 64 elements, or two of 32.
// An access of 16 bytes takes eight turns of eight lanes (Composable Kernel documentation, "Understanding AMD GPU LDS
// and Bank Conflicts"): ds_write_b128 lanes 0-7, 8-15, ...; ds_read_b128 lanes 0-3 with 20-23, 4-7 with 16-19, 8-11
// with 28-31, 12-15 with 24-27, and likewise in the upper half of the wave. Within a turn no two lanes may access
// different chunks of one column of chunks (the same 4 banks).
//
//   writes  eight lanes write a line: one row, or two.
//   reads   lane l reads chunk l / 16 of row l % 16, so a turn reads 4 rows of one chunk and 4 other rows of the next
//           one. All 8 rows differ modulo 8. The chunks of row r are permuted by r's line, so no two of a turn conflict
//           (shape_mfma_test.cc).
#pragma once

#include "farwarp/base/machine_shape.h"

namespace farwarp::tile {

/// A tile of `rows` rows of x by `columns` rows of w, for row_waves x column_waves waves of 64 threads.
struct MfmaShape {
  int rows;
  int columns;
  int depth;  ///< elements of K in a stage: 32 or 64
  int row_waves;
  int column_waves;

  constexpr int threads() const { return 64 * row_waves * column_waves; }
  constexpr int step_depth() const { return 2 * depth; }  ///< elements of K in a step: two stages
  constexpr int row_bytes() const { return 2 * depth; }
  constexpr int chunks() const { return depth / 8; }
  constexpr int stage_bytes() const { return (rows + columns) * row_bytes(); }
  constexpr int arrived_last() const {
    return 2 * stage_bytes();
  }  ///< offset of 4 bytes that say if this split arrived last
  constexpr int shared_bytes() const { return arrived_last() + 16; }
};

/// Byte offset of a chunk in one operand's part of a stage.
constexpr int chunk_offset(int row, int chunk, int chunks) {
  const int line = row * chunks / 8;
  return (row * chunks + (chunk ^ line % chunks)) * 16;
}

/// The tile's column that lies in row `row` of w's part of a stage. A lane holds 4 rows of each 16 x 16 product
/// (base/fragments.h:
/// mfma_sum()). In this order, its rows of two neighbouring products are 8 consecutive columns of y, 16 bytes.
constexpr int column_in_row(int row) { return row / 32 * 32 + row % 16 / 4 * 8 + row % 32 / 16 * 4 + row % 4; }

inline constexpr int kMfmaThreads = 512;  ///< 8 waves

/// Tiles of the mfma kernels; their rows are always rows of x. The large one is for products that fill the machine, the
/// small one for the others: few rows, where only the time to read w from memory matters.
inline constexpr MfmaShape kMfmaLarge{.rows = 256, .columns = 128, .depth = 32, .row_waves = 4, .column_waves = 2};
inline constexpr MfmaShape kMfmaSmall{.rows = 64, .columns = 128, .depth = 64, .row_waves = 2, .column_waves = 4};
constexpr const MfmaShape& mfma_shape(int rows) { return rows == kMfmaLarge.rows ? kMfmaLarge : kMfmaSmall; }
static_assert(kMfmaLarge.threads() == kMfmaThreads && kMfmaSmall.threads() == kMfmaThreads);
static_assert(kMfmaLarge.shared_bytes() <= traits_of(TargetKind::kHip).shared_bytes &&
              kMfmaSmall.shared_bytes() <= traits_of(TargetKind::kHip).shared_bytes);

}  // namespace farwarp::tile
