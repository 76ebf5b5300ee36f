// Tiles of the Hopper main loop and where they lie in shared memory.
#pragma once

namespace farwarp::tile {

inline constexpr int kWgmmaThreads = 384;   ///< one warpgroup that loads, two that multiply
inline constexpr int kWgmmaRows = 128;      ///< rows of A in a tile
inline constexpr int kWgmmaTallRows = 256;  ///< rows of A in a tall tile
inline constexpr int kTallColumns = 192;    ///< columns of a tall tile
inline constexpr int kWgmmaDepth = 64;      ///< K elements of a step

/// The widest tile that can be split along K: registers hold both the sums of one split and the total.
inline constexpr int kMaxSplitColumns = 128;
inline constexpr int kMaxSplits = 16;

// Boxes of a warpgroup in tiles of 256 columns: 4 boxes leave room for 3 stages, 2 boxes for 4 stages.
/// Of gemm.
inline constexpr int kGemmBoxesOf256 = 4;
/// Of ag-gemm, whose loaders wait for peers: ops/parallel_gemm/ag_gemm/MEASURED.md.
inline constexpr int kAllGatherBoxesOf256 = 2;
/// Of kernels that send boxes to other ranks: ops/parallel_gemm/gemm_rs/MEASURED.md.
inline constexpr int kSendBoxesOf256 = 2;
/// Boxes of a warpgroup: at least 2, and as many as 64 rows of a tile fill, unless the ring would lose a stage that it
/// needs (tiles of 224 columns:
/// ops/gemm/MEASURED.md).
constexpr int wgmma_boxes(int columns, int of_256) { return columns == 192 ? 3 : columns == 256 ? of_256 : 2; }

/// Rows of y in a box if swap_ab; `columns` are the rows of x in a tile. With 4 splits each block stores half of these
/// rows.
constexpr int swap_ab_box_rows(int columns, int splits) { return splits == 4 ? columns / 2 : columns; }

/// Shared memory of a kernel with tiles of `rows` x `columns` and `buffers` boxes for each warpgroup: stages, then
/// boxes of the epilogue, then the barriers.
struct WgmmaShared {
  int rows = kWgmmaRows, columns = 0;
  int buffers = 2;

  static constexpr int kLimit = 227 * 1024;
  static constexpr int kBoxBytes = 64 * 128;   ///< 64 rows of 64 elements; if transposed, up to 64 rows
  static constexpr int kBarriers = 1024;       ///< bytes: the ring's barriers, then what the three offsets below name
  static constexpr int kOperatorOffset = 512;  ///< offset, from barriers(), of an operator's own barriers and words
  static constexpr int kArrivedLast =
      960;  ///< offset of what says if this split arrived last, 4 bytes for each multiplier
  static constexpr int kStartOffset = 992;  ///< offset of the barrier at which multipliers arrive and the loader waits
  constexpr int stage_bytes() const { return (rows + columns) * 128; }
  constexpr int box_bytes() const { return 2 * buffers * kBoxBytes; }  ///< two warpgroups
  constexpr int stages() const { return (kLimit - box_bytes() - kBarriers) / stage_bytes(); }
  constexpr int boxes() const { return stages() * stage_bytes(); }
  constexpr int barriers() const { return boxes() + box_bytes(); }
  constexpr int total() const { return barriers() + kBarriers; }
};

}  // namespace farwarp::tile
