// Tiles of the Hopper main loop and where they lie in shared memory.
#pragma once

namespace farwarp::tile {

inline constexpr int kWgmmaThreads = 384;  ///< a warpgroup that loads, two that multiply
inline constexpr int kWgmmaRows = 128;     ///< rows of A in a tile
inline constexpr int kWgmmaDepth = 64;     ///< K elements of a step

/// Tiles up to this wide can be split along K: the sums of one split and their total share the registers.
inline constexpr int kMostSplitColumns = 128;
inline constexpr int kMostSplits = 16;

/// Shared memory of a kernel whose tiles have `columns` columns and whose warpgroups have `buffers` boxes each: stages, then boxes of
/// the epilogue, then the barriers.
struct WgmmaShared {
  static constexpr int kLimit = 227 * 1024;
  static constexpr int kBoxBytes = 64 * 128;  ///< 64 rows of 64 elements
  static constexpr int kBarriers = 1024;      ///< of the ring, then kWords
  static constexpr int kWords = 960;          ///< offset among them of the words that tell the last of a split
  static constexpr int stage_bytes(int columns) { return (kWgmmaRows + columns) * 128; }
  static constexpr int box_bytes(int buffers) { return 2 * buffers * kBoxBytes; }  ///< two warpgroups
  static constexpr int stages(int columns, int buffers = 2) {
    return (kLimit - box_bytes(buffers) - kBarriers) / stage_bytes(columns);
  }
  static constexpr int boxes(int columns, int buffers = 2) { return stages(columns, buffers) * stage_bytes(columns); }
  static constexpr int barriers(int columns, int buffers = 2) { return boxes(columns, buffers) + box_bytes(buffers); }
  static constexpr int total(int columns, int buffers = 2) { return barriers(columns, buffers) + kBarriers; }
};

}  // namespace farwarp::tile
