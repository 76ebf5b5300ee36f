// The argument block of the kernels of gemm-rs and gemm-ar.
#pragma once

#include <cstdint>

#include "farwarp/base/tensor_map.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/plan.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/world/view.h"

namespace farwarp::gemm_reduce {

/// Wait sites of the ledger.
enum Site : std::uint32_t { kSiteBlock, kSiteReady, kSitePartials, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a barrier of the block (operands, boxes, the call)",
                                                   "a peer's readiness", "a peer's partial sums"};

/// Boxes of a warpgroup in tiles of 256 columns if owners fetch: all of a tile's, so that they arrive while the tile is
/// multiplied.
inline constexpr int kFetchBoxesOf256 = 4;

/// The most elements from one row of an operand to the next: the mfma kernels compute offsets within a tile in 32 bits.
inline constexpr std::int64_t kMfmaMostPitch = std::int64_t{1} << 22;

/// One argument block for all kernels. Each reads the members that it needs.
struct Args {
  TensorMap a;       ///< wgmma: the operand whose rows are a tile's rows, boxes of 128 x 64
  TensorMap a_last;  ///< wgmma: of x, boxes of last.rows x 64; not used with swap_ab
  TensorMap b;       ///< wgmma: the other, boxes of tile columns x 64
  /// wgmma: by owner, the part of its inbox that this rank writes. Boxes are 64 x 64; with swap_ab, tile columns x 64.
  TensorMap inbox_maps[kMaxRanks];
  TensorMap parts_map;  ///< wgmma, if owners fetch: this rank's partial sums of the peer's rows, boxes 64 x 64
  TensorMap y_map;      ///< the same: y, boxes 64 x 64
  WorldView view;
  std::uint32_t slot;    ///< of the operator in its World
  std::int32_t m, n, k;  ///< of this rank's product
  /// At most m; further rows of x are padding. With words their sums are not sent. With boxes they are sent and
  /// flagged, and owners wait for these flags. Their values are arbitrary, also NaN: nothing may use them.
  std::int32_t x_rows;
  tile::LastTile last;     ///< wgmma: of x
  std::uint32_t drop_put;  ///< fault injection: this rank does not send its n-th tile (from 1); 0: none
  std::int32_t xcds;       ///< mfma: dies over which consecutive blocks are distributed; tile/gemm/xcd.h
  tile::TileGrid grid;
  RowOrder order;
  Bands bands;
  WordInbox word_inbox;  ///< rows is 0: partial sums are sent as boxes with flags
  Workspace offsets;     ///< in every heap
  const void* x;         ///< [m, k]
  const void* w;         ///< [n, k]
  const void* bias;      ///< [n], or null
  void* y;               ///< [m / ranks, n]
};

}  // namespace farwarp::gemm_reduce
