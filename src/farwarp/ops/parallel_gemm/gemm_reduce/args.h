// What the host passes to the kernels of gemm-rs.
#pragma once

#include <cstdint>

#include "farwarp/base/tensor_map.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/plan.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/world/view.h"

namespace farwarp::gemm_reduce {

/// Wait sites of the ledger.
enum Site : std::uint32_t { kSiteStage, kSiteReady, kSitePartials, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a stage of operands", "a peer's readiness",
                                                   "a peer's partial sums"};

/// Offsets within a tile of the mfma kernels are 32 bits wide.
inline constexpr std::int64_t kMfmaMostPitch = std::int64_t{1} << 22;

/// The argument block of every kernel of gemm-rs; a kernel reads what it needs.
struct Args {
  TensorMap a;  ///< wgmma: the operand whose rows are a tile's rows, boxes of 128 x 64
  TensorMap b;  ///< wgmma: the other, boxes of tile columns x 64
  /// wgmma: the part of each owner's inbox for this rank's partial sums, boxes of 64 x 64, or tile columns x 64 if swap_ab
  TensorMap inbox[kMaxRanks];
  WorldView view;
  std::uint32_t slot;      ///< of the operator in its World
  std::int32_t m, n, k;    ///< of this rank's product
  std::int32_t x_rows;     ///< rows of x, at most m; the rest of m is padding
  std::uint32_t drop_put;  ///< fault injection: this rank's n-th tile (from 1) is not sent; 0: none
  std::int32_t xcds;       ///< mfma: dies that blocks are dealt to in turn; tile/gemm/xcd.h
  tile::TileGrid grid;
  RowOrder order;
  Bands bands;
  WordInbox word_inbox;  ///< 0 rows: boxes and flags
  Workspace at;          ///< offsets in every heap
  const void* x;         ///< [m, k]
  const void* w;         ///< [n, k]
  const void* bias;      ///< [n], or null
  void* y;               ///< [m / ranks, n]
};

}  // namespace farwarp::gemm_reduce
