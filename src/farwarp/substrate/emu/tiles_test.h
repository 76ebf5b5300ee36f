// The kernels of the tests of tensor copies, wgmma, numbered barriers and clusters (tiles_test.dev.cc).
#pragma once

#include <cstdint>

#include "farwarp/base/tensor_map.h"

namespace farwarp {

/// out[rows, columns] = sum over steps of a[.., 64 columns] * b[.., 64 columns]^T, one tile of 64 x 64 at (row,
/// column), stored at (out_row, out_column).
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

/// litmus_rs: out[64 keys' queries, 128] = (q * k^T) * v with the product in registers, q, k and v [64 or so, ..] from
/// a grid of matrices. Every element of `out` is fp32, stored by its thread. Args: LitmusRsArgs.
struct LitmusRsArgs {
  TensorMap q, k, v;
  float* out;           ///< [64, 128]
  std::int32_t matrix;  ///< number in the grid, in both directions
  std::int32_t variant;
};
inline constexpr int kRsPanelBytes = 64 * 128;
inline constexpr int kRsSharedBytes = 4 * kRsPanelBytes + 1024;  ///< q, k, two panels of v, a barrier and a word

/// litmus_mn: the same, as out^T = v^T * (k * q^T), with v^T an MN-major A. The product k * q^T replaces q in shared
/// memory.
enum MnVariant : std::int32_t {
  kMnRight,
  kMnFromRegisters,  ///< right: k is read into registers first
  kMnNoProxyFence,   ///< no proxy fence between the threads' stores of the product and the wgmma that reads it
};

enum RsVariant : std::int32_t {
  kRsRight,
  kRsWriteEarly,    ///< A's registers are written before the wait
  kRsSumsEarly,     ///< the second product's sums are read after a wait for the first alone
  kRsArriveBefore,  ///< a warpgroup arrives at a barrier before it stores what the other reads after it
  kRsNoArrive,      ///< the reader does not wait at that barrier
};

}  // namespace farwarp
