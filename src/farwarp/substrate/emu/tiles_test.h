// The kernels of the tests of tensor copies, wgmma, numbered barriers and clusters (tiles_test.dev.cc).
#pragma once

#include <cstdint>

#include "farwarp/base/tensor_map.h"

namespace farwarp {

/// out[rows, columns] = sum over steps of a[.., 64 columns] * b[.., 64 columns]^T, one tile of 64 x 64 at (row, column), stored at
/// (out_row, out_column).
struct TileArgs {
  TensorMap a, b, out;
  std::int32_t row, column;
  std::int32_t out_row, out_column;
  std::int32_t steps;
  std::int32_t variant;
};

/// litmus_cluster: each block gives each other block of its cluster a word, and reads what it got.
inline constexpr int kClusterBlocks = 4;

inline constexpr int kTileThreads = 256;                      ///< a warpgroup that loads, one that multiplies
inline constexpr int kTileSharedBytes = 3 * 64 * 128 + 1024;  ///< a, b, the result, barriers

enum TileVariant : std::int32_t {
  kTileRight,
  kTileNoProxyFence,  ///< the tensor store reads what threads wrote, without one
  kTileNoGroupSync,   ///< ... before all of them have
  kTileReadEarly,     ///< the stage is given back while its wgmma may still read it
  kTileSumsEarly,     ///< the sums are read before wgmma_wait_all()
  kTileFewBytes,      ///< the barrier expects fewer bytes than come
  kTileNoWgmmaFence,
  kTileNoWait,  ///< the kernel ends with a wgmma that nobody waited for
};

}  // namespace farwarp
