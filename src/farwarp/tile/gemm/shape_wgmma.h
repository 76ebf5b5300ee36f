// Tiles of the Hopper main loop and where they lie in shared memory.
#pragma once

namespace farwarp::tile {

inline constexpr int kWgmmaThreads = 384;  ///< a warpgroup that loads, two that multiply
inline constexpr int kWgmmaRows = 128;     ///< rows of A in a tile
inline constexpr int kWgmmaDepth = 64;     ///< K elements of a step

/// Tiles up to this wide can be split along K: the sums of one split and their total share the registers.
inline constexpr int kMostSplitColumns = 128;
inline constexpr int kMostSplits = 16;

/// Shared memory of a kernel whose tiles have `columns` columns: stages, then boxes of the epilogue, then the barriers.
struct WgmmaShared {
  static constexpr int kLimit = 227 * 1024;
  static constexpr int kBoxes = 2 * 2 * 64 * 128;  ///< two warpgroups, two boxes each of 64 rows x 128 bytes
  static constexpr int kBarriers = 1024;           ///< of the ring, then kWords
  static constexpr int kWords = 960;               ///< offset among them of the words that tell the last of a split
  static constexpr int stage_bytes(int columns) { return (kWgmmaRows + columns) * 128; }
  static constexpr int stages(int columns) { return (kLimit - kBoxes - kBarriers) / stage_bytes(columns); }
  static constexpr int boxes(int columns) { return stages(columns) * stage_bytes(columns); }
  static constexpr int barriers(int columns) { return boxes(columns) + kBoxes; }
  static constexpr int total(int columns) { return barriers(columns) + kBarriers; }
};

}  // namespace farwarp::tile
