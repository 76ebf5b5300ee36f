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
  int comm_blocks = 0;    ///< blocks in addition to those of the tiling, with lower numbers; for wgmma whole clusters
  int sending_warps = 0;  ///< warps of a comm block that send
  bool words = false;     ///< x crosses as words; else as boxes (on CDNA as vectors) with flags
  /// Every tile has rows of one rank only, and tiles of own rows are read from x itself. Else this rank's x is gathered
  /// like the peers'.
  bool own_read_directly = false;
  int piece_rows = 0,
      piece_depth = 0;  ///< of a piece, which one warp sends at a time and one flag guards: rows of x, elements of k
  int row_pieces = 0, depth_pieces = 0;
  int piece_group = 0;     ///< rows of pieces in a group: ag_gemm::PieceOrder
  int rows_per_shard = 0;  ///< rows of tiles; 0: a row of tiles may have rows of several shards
  // Offsets in the workspace.
  std::int64_t gathered = 0, arrived = 0, partials = 0, counters = 0;
  std::int64_t workspace_heap_bytes = 0;
  std::int64_t inbox_bytes = 0;  ///< of a separate buffer, all ones at first
  std::int64_t heap_bytes = 0;   ///< workspace and inboxes
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<AllGatherGemmPlan> plan_ag_gemm(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks);

}  // namespace farwarp
