// Desc + machine -> plan of ag-gemm. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/tile/gemm/tiling.h"

namespace farwarp {

struct AllGatherGemmPlan : tile::Tiling {
  ParallelGemmDesc desc;
  int ranks = 0;
  parallel_gemm::LocalShape local;
  int comm_blocks = 0;    ///< blocks before those of the tiling; of wgmma whole clusters
  int sending_warps = 0;  ///< warps of a comm block that send
  bool words = false;     ///< x crosses as words; else as boxes, or on CDNA as vectors, with flags
  /// Tiles of own rows alone are read from x itself. Else some tile has rows of several ranks, and x is gathered whole.
  bool own_apart = false;
  int piece_rows = 0,
      piece_depth = 0;  ///< what a warp sends at a time, and one flag tells of: rows of x, elements of k
  int row_pieces = 0, depth_pieces = 0;
  int piece_group = 0;     ///< rows of pieces that leave together: ag_gemm::PieceOrder
  int rows_per_shard = 0;  ///< rows of tiles; 0: shards share rows of tiles
  // Offsets in the workspace.
  std::int64_t gathered = 0, arrived = 0, partials = 0, counters = 0;
  std::int64_t workspace_heap_bytes = 0;
  std::int64_t inbox_bytes = 0;  ///< of a buffer of its own, all ones at first
  std::int64_t heap_bytes = 0;   ///< of both
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<AllGatherGemmPlan> plan_ag_gemm(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks);

}  // namespace farwarp
