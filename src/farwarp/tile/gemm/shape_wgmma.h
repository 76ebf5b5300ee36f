// Tiles of the Hopper main loop and where they lie in shared memory.
#pragma once

namespace farwarp::tile {

inline constexpr int kWgmmaThreads = 384;   ///< a warpgroup that loads, two that multiply
inline constexpr int kWgmmaRows = 128;      ///< rows of A in a tile,
inline constexpr int kWgmmaTallRows = 256;  ///< or in a tall one,
inline constexpr int kTallColumns = 192;    ///< ... which has so many columns
inline constexpr int kWgmmaDepth = 64;      ///< K elements of a step

/// Tiles up to this wide can be split along K: the sums of one split and their total share the registers.
inline constexpr int kMostSplitColumns = 128;
inline constexpr int kMostSplits = 16;

/// Of tiles with 256 columns: a warpgroup's boxes, 4 and 3 stages, or 2 and 4.
inline constexpr int kGemmWidestBoxes = 4;
/// Its loaders wait for peers: builds with 2 boxes took 714 to 725 us, one with 4 735 (8192 x 14784 x 8192 on 4 H200s, 2026-11).
inline constexpr int kAllGatherWidestBoxes = 2;
/// Its boxes leave for other ranks: with 2, 265 and 769 us, with 4 281 and 847 (gemm-rs, 8192 x 4096 x 14336 and 8192 x 8192 x 29568 on 8
/// H200s, 2026-11).
inline constexpr int kSendWidestBoxes = 2;
/// Boxes of a warpgroup: all that 64 rows of a tile fill, where the ring does not lose a stage that it needs (8192 x 1792 x 4096 with 224
/// columns on an H200: 161 us with 4 stages and 2 boxes, 169 with 3 and 4).
constexpr int wgmma_boxes(int columns, int widest) { return columns == 192 ? 3 : columns == 256 ? widest : 2; }

/// Of few rows, tiles of `columns` of them: rows of y in a box. Of 4 splits, two store half of the rows each.
constexpr int swap_ab_box_rows(int columns, int splits) { return splits == 4 ? columns / 2 : columns; }

/// Shared memory of a kernel with tiles of `rows` x `columns`, whose warpgroups have `buffers` boxes each: stages, then boxes of the
/// epilogue, then the barriers.
struct WgmmaShared {
  int rows = kWgmmaRows, columns = 0;
  int buffers = 2;

  static constexpr int kLimit = 227 * 1024;
  static constexpr int kBoxBytes = 64 * 128;  ///< 64 rows of 64 elements
  static constexpr int kBarriers = 1024;      ///< of the ring, then as follows
  static constexpr int kBeside = 512;         ///< offset among them of what an operator's own block has beside them
  static constexpr int kWords = 960;          ///< ... of the words that tell the last of a split
  static constexpr int kMeeting = 992;        ///< ... of the barrier that multipliers come to and the loader waits at
  constexpr int stage_bytes() const { return (rows + columns) * 128; }
  constexpr int box_bytes() const { return 2 * buffers * kBoxBytes; }  ///< two warpgroups
  constexpr int stages() const { return (kLimit - box_bytes() - kBarriers) / stage_bytes(); }
  constexpr int boxes() const { return stages() * stage_bytes(); }
  constexpr int barriers() const { return boxes() + box_bytes(); }
  constexpr int total() const { return barriers() + kBarriers; }
};

}  // namespace farwarp::tile
