// What the host hands to the kernels of gemm.
#pragma once

#include <cstdint>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/tensor_map.h"
#include "farwarp/tile/gemm/shape_mfma.h"
#include "farwarp/world/view.h"

namespace farwarp::gemm {

inline constexpr int kWgmmaThreads = 384;  ///< a warpgroup that loads, two that multiply
inline constexpr int kMfmaThreads = 512;   ///< 8 waves

/// Rows of A in a tile of the wgmma kernels. A is x, or w where the plan swaps the operands.
inline constexpr int kTileRows = 128;
/// K elements of one step of the wgmma kernels.
inline constexpr int kStepDepth = 64;

/// Tiles up to this wide can be split along K: the sums of one split and their total share the registers.
inline constexpr int kMostSplitColumns = 128;
inline constexpr int kMostSplits = 16;

/// Wait sites of the ledger.
enum Site : std::uint32_t { kSiteStage, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a stage of operands"};

/// Shared memory of a wgmma kernel whose tiles have `columns` columns: stages, then boxes of the epilogue, then the barriers.
struct WgmmaShared {
  static constexpr int kLimit = 227 * 1024;
  static constexpr int kBoxes = 2 * 2 * 64 * 128;  ///< two warpgroups, two boxes each of 64 rows x 128 bytes
  static constexpr int kBarriers = 1024;           ///< of the ring and the word that tells the last of a split
  static constexpr int stage_bytes(int columns) { return (kTileRows + columns) * 128; }
  static constexpr int stages(int columns) { return (kLimit - kBoxes - kBarriers) / stage_bytes(columns); }
  static constexpr int boxes(int columns) { return stages(columns) * stage_bytes(columns); }
  static constexpr int barriers(int columns) { return boxes(columns) + kBoxes; }
  static constexpr int total(int columns) { return barriers(columns) + kBarriers; }
};

/// Tiles of the mfma kernels, whose rows are always of x: for products that fill the machine, and for few rows, where w's way from
/// memory is all that counts.
inline constexpr tile::MfmaShape kMfmaLarge{
    .rows = 256, .columns = 128, .depth = 32, .row_waves = 4, .column_waves = 2};
inline constexpr tile::MfmaShape kMfmaFew{.rows = 64, .columns = 128, .depth = 64, .row_waves = 2, .column_waves = 4};
static_assert(kMfmaLarge.threads() == kMfmaThreads && kMfmaFew.threads() == kMfmaThreads);
static_assert(kMfmaLarge.shared_bytes() <= traits_of(TargetKind::kHip).shared_bytes &&
              kMfmaFew.shared_bytes() <= traits_of(TargetKind::kHip).shared_bytes);
/// Their offsets within a tile are 32 bits wide.
inline constexpr std::int64_t kMfmaMostPitch = std::int64_t{1} << 22;

/// The argument block of every kernel of gemm; a kernel reads what it needs.
struct Args {
  TensorMap a;    ///< wgmma: the operand whose rows are a tile's rows, boxes of 128 x 64
  TensorMap b;    ///< wgmma: the other, boxes of tile columns x 64
  TensorMap out;  ///< wgmma: boxes of 64 x 64, or tile columns x 64 if swapped
  WorldView view;
  std::uint32_t slot;  ///< of the operator in its World
  std::int32_t m, n, k;
  std::int32_t tile_rows, tile_columns;  ///< how many tiles
  std::int32_t group;                    ///< rows of tiles at a time: tile/gemm/raster.h
  std::int32_t splits;                   ///< parts of K that different blocks sum, at most the steps of K
  std::int32_t xcds;                     ///< mfma: dies that blocks are dealt to in turn; tile/gemm/xcd.h
  std::int64_t partials;  ///< offset in the heap: [tiles, splits, rows, columns of a tile] fp32, by fragments
  std::int64_t counters;  ///< [parts] words: epoch << 8 | how many splits have arrived; wgmma has 2 parts a tile
  const void* x;          ///< [m, k]
  const void* w;          ///< [n, k]
  const void* bias;       ///< [n], or null
  void* y;                ///< [m, n]
  std::int64_t x_pitch, w_pitch, y_pitch;  ///< elements from row to row
};

}  // namespace farwarp::gemm
