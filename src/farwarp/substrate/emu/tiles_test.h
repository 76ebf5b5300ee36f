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

/// litmus_cluster: each block stores a word in each block of its cluster, then reads the words that it received.
inline constexpr int kClusterBlocks = 4;

inline constexpr int kTileThreads = 256;                      ///< one warpgroup loads, one multiplies
inline constexpr int kTileSharedBytes = 3 * 64 * 128 + 1024;  ///< a, b, the result, barriers

enum TileVariant : std::int32_t {
  kTileRight,
  kTileNoProxyFence,  ///< no proxy fence between the threads' stores and the tensor store
  kTileNoGroupSync,   ///< the tensor store is issued before all threads have written
  kTileReadEarly,     ///< the stage is released while a wgmma may still read it
  kTileSumsEarly,     ///< the sums are read before wgmma_wait_all()
  kTileFewBytes,      ///< the barrier expects fewer bytes than arrive
  kTileNoWgmmaFence,
  kTileNoWait,  ///< the kernel ends without a wait for the last wgmma
};

}  // namespace farwarp
