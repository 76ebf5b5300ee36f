// Tiles of the CDNA main loop: their shapes, and how their operands lie in LDS.
//
// A stage holds `depth` elements of K of the tile's rows (of x, and of w if that goes through LDS), as rows of 64 or
// 128 bytes, in chunks of 16 bytes (8 elements). LDS has 32 banks of 4 bytes, so 128 bytes are one line of all banks:
// one row of 64 elements, or two of 32. An access of 16 bytes takes eight turns of eight lanes (Composable Kernel
// documentation, "Understanding AMD GPU LDS and Bank Conflicts"): ds_write_b128 lanes 0-7, 8-15, ...; ds_read_b128
// lanes 0-3 with 20-23, 4-7 with 16-19, 8-11 with 28-31, 12-15 with 24-27, and likewise in the upper half of the wave.
// Within a turn no two lanes may access different chunks of one column of chunks (the same 4 banks).
//
//   writes  eight lanes write a line: one row, or two.
//   reads   lane l reads chunk l / 32 of row l % 32, so a turn reads 8 rows that differ modulo 8. The chunks of row r
//           are permuted by r's line, so no two of a turn conflict (shape_mfma_test.cc).
#pragma once

#include "farwarp/base/machine_shape.h"

namespace farwarp::tile {

/// A tile of `rows` rows of x by `columns` rows of w, for row_waves x column_waves x k_waves waves of 64 threads.
struct MfmaShape {
  int rows;
  int columns;
  int depth;  ///< elements of K in a stage: 32 or 64
  int row_waves;
  int column_waves;
  /// 2: of each stage's K, a wave takes one half; at the end of a tile the two waves exchange sums. No row of w is then
  /// read by two waves, if row_waves is 1: w goes from memory to the fragments, without LDS.
  int k_waves = 1;

  constexpr int threads() const { return 64 * row_waves * column_waves * k_waves; }
  constexpr bool w_in_lds() const { return k_waves == 1; }
  constexpr int stages() const { return w_in_lds() ? 2 : 4; }  ///< of a step
  constexpr int step_depth() const { return stages() * depth; }
  constexpr int row_bytes() const { return 2 * depth; }
  constexpr int chunks() const { return depth / 8; }
  constexpr int stage_bytes() const { return (rows + (w_in_lds() ? columns : 0)) * row_bytes(); }
  constexpr int exchange() const { return 2 * stage_bytes(); }  ///< offset of the sums that waves exchange
  constexpr int exchange_bytes() const { return k_waves == 1 ? 0 : rows * columns * 4; }
  /// Offset of 4 bytes that say if this split arrived last.
  constexpr int arrived_last() const { return exchange() + exchange_bytes(); }
  constexpr int shared_bytes() const { return arrived_last() + 16; }
};

/// Byte offset of a chunk in one operand's part of a stage.
constexpr int chunk_offset(int row, int chunk, int chunks) {
  const int line = row * chunks / 8;
  return (row * chunks + (chunk ^ line % chunks)) * 16;
}

/// The tile's column that lies in row `row` of w's part of a stage. A lane holds four times 4 rows of each 32 x 32
/// product (base/fragments.h: mfma32_sum()). In this order, they are twice 8 consecutive columns of y, 16 bytes.
constexpr int column_in_row(int row) { return row / 16 * 16 + row % 8 / 4 * 8 + row % 16 / 8 * 4 + row % 4; }

inline constexpr int kMfmaThreads = 512;  ///< 8 waves

/// Tiles of the mfma kernels; their rows are always rows of x. The large one is for products that fill the machine, the
/// small one for the others: few rows, where only the time to read w from memory matters.
inline constexpr MfmaShape kMfmaLarge{.rows = 256, .columns = 128, .depth = 32, .row_waves = 4, .column_waves = 2};
inline constexpr MfmaShape kMfmaSmall{
    .rows = 64, .columns = 128, .depth = 64, .row_waves = 1, .column_waves = 4, .k_waves = 2};
constexpr const MfmaShape& mfma_shape(int rows) { return rows == kMfmaLarge.rows ? kMfmaLarge : kMfmaSmall; }
static_assert(kMfmaLarge.threads() == kMfmaThreads && kMfmaSmall.threads() == kMfmaThreads);
static_assert(kMfmaLarge.shared_bytes() <= traits_of(TargetKind::kHip).shared_bytes &&
              kMfmaSmall.shared_bytes() <= traits_of(TargetKind::kHip).shared_bytes);

}  // namespace farwarp::tile
