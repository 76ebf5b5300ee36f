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
  std::string kernel;
  int communicators = 0;  ///< blocks before those of the tiling; of wgmma whole clusters
  int senders = 0;        ///< warps of a communicator that send
  /// Tiles of own rows alone are read from x itself. Else some tile has rows of several ranks, and x is gathered whole.
  bool own_apart = false;
  int piece_rows = 0, piece_depth = 0;  ///< what one flag tells of: rows of x, elements of k
  int row_pieces = 0, depth_pieces = 0;
  int piece_band = 0;  ///< rows of pieces that leave together: piece_in_turn()
  /// Few rows travel as packets (args.h, PacketPieces); packet_steps is 0 where x travels in boxes.
  int packet_steps = 0, packet_pieces = 0;  ///< steps of K in a piece; pieces of a split
  int packet_senders = 0, packet_gatherers = 0;
  int rows_per_shard = 0;  ///< rows of tiles; 0: shards share rows of tiles
  // Offsets in the workspace.
  std::int64_t gathered = 0, arrived = 0, packets = 0, told = 0, partials = 0, counters = 0;
  std::int64_t heap_bytes = 0;
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<AllGatherGemmPlan> plan_ag_gemm(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks);

}  // namespace farwarp
