// Tiles of the Hopper main loop and where they lie in shared memory.
#pragma once

namespace farwarp::tile {

inline constexpr int kWgmmaRows = 128;  ///< rows of A in most tiles; gemm has others, too
inline constexpr int kWgmmaDepth = 64;  ///< K elements of a step

/// Warpgroups that multiply. They share the rows of A.
constexpr int wgmma_multipliers(int rows) { return rows < kWgmmaRows ? 1 : 2; }
/// A warpgroup that loads, and those that multiply.
constexpr int wgmma_threads(int rows) { return 128 * (1 + wgmma_multipliers(rows)); }
inline constexpr int kWgmmaThreads = wgmma_threads(kWgmmaRows);

/// The widest tile that can be split along K: registers hold both the sums of one split and the total.
inline constexpr int kMaxSplitColumns = 128;
inline constexpr int kMaxFourSplitColumns = 64;  ///< the same with swap_ab, by 4 blocks of a cluster
/// Whether gemm has 4 blocks of a cluster split a tile of 128 rows. A block stores half of a multiplier's columns:
/// whole fragments, and without swap_ab a box.
constexpr bool has_four_splits(bool swap_ab, int columns) {
  return columns % 16 == 0 && (swap_ab ? columns <= 80 : columns == 128);
}
inline constexpr int kMaxSplits = 16;

// Boxes of a warpgroup in tiles of 256 columns: 4 boxes leave room for 3 stages, 2 boxes for 4 stages.
/// Of ag-gemm, whose loaders wait for peers: ops/parallel_gemm/ag_gemm/MEASURED.md.
inline constexpr int kAllGatherBoxesOf256 = 2;
/// Of kernels that send boxes to other ranks: ops/parallel_gemm/gemm_rs/MEASURED.md.
inline constexpr int kSendBoxesOf256 = 2;
/// Boxes of a warpgroup: at least 2, and as many as 64 rows of a tile fill, unless the ring would lose a stage that it
/// needs (tiles of 224 columns:
/// ops/gemm/MEASURED.md).
constexpr int wgmma_boxes(int columns, int of_256) { return columns == 192 ? 3 : columns == 256 ? of_256 : 2; }
/// Of gemm. In boxes of 128 columns the inbox of 4 splits has room.
constexpr int gemm_boxes(int columns, bool swap_ab) {
  return swap_ab ? 2 : columns == 128 ? 3 : wgmma_boxes(columns, 4);
}

/// swap_ab: rows of y in a tile's first box; a second has the others. `columns`: rows of x that a tile has room for. A
/// box has at most 128 rows. With 4 splits each block stores half of the columns.
constexpr int swap_ab_first_rows(int columns, int splits) {
  constexpr int kFirstOfWide = 80;  // a multiple of 8, so that the swizzle of a row is the same in both boxes
  return splits == 4 ? columns / 2 : columns > 128 ? kFirstOfWide : columns;
}
/// Rows of y in the first box of each 64 columns, or with swap_ab of each 64 rows of w.
constexpr int first_box_rows(bool swap_ab, int columns, int splits) {
  return swap_ab ? swap_ab_first_rows(columns, splits) : 64;
}

/// Shared memory of a kernel with tiles of `rows` x `columns` and `buffers` boxes for each warpgroup: stages, then
/// boxes of the epilogue, then the barriers.
struct WgmmaShared {
  int rows = kWgmmaRows, columns = 0;
  int buffers = 2;

  static constexpr int kLimit = 227 * 1024;
  static constexpr int kBoxBytes = 64 * 128;   ///< 64 rows of 64 elements
  static constexpr int kBarriers = 1024;       ///< bytes: the ring's barriers, then what the three offsets below name
  static constexpr int kOperatorOffset = 512;  ///< offset, from barriers(), of an operator's own barriers and words
  static constexpr int kArrivedLast =
      960;  ///< offset of what says if this split arrived last, 4 bytes for each multiplier
  static constexpr int kStartOffset = 992;  ///< offset of the barrier at which multipliers arrive and the loader waits
  constexpr int stage_bytes() const { return (rows + columns) * 128; }
  constexpr int box_bytes() const { return wgmma_multipliers(rows) * buffers * kBoxBytes; }
  constexpr int stages() const { return (kLimit - box_bytes() - kBarriers) / stage_bytes(); }
  constexpr int boxes() const { return stages() * stage_bytes(); }
  constexpr int barriers() const { return boxes() + box_bytes(); }
  constexpr int total() const { return barriers() + kBarriers; }
};

}  // namespace farwarp::tile
