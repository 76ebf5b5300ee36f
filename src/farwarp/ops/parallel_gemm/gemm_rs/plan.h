// Desc + machine -> plan of gemm-rs. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/layout.h"
#include "farwarp/tile/gemm/tiling.h"

namespace farwarp {

/// Where everything lies in the workspace, in bytes.
struct GemmReduceScatterWorkspace {
  std::int64_t inbox = 0;     ///< [ranks][m / ranks][n] of the dtype: each rank's partial sums of this rank's rows
  std::int64_t flags = 0;     ///< [ranks][bands.row_count][bands.column_count] cells of 8 bytes: epoch << 32
  std::int64_t entries = 0;   ///< [kMaxRanks] cells: world/device/entry.dev.h
  std::int64_t partials = 0;  ///< of splits: tile/gemm/split.dev.h
  std::int64_t counters = 0;
  std::int64_t total = 0;
};

struct GemmReduceScatterPlan : tile::Tiling {
  ParallelGemmDesc desc;
  int ranks = 0;
  std::string kernel;  ///< its name
  gemm_rs::Bands bands{};
  GemmReduceScatterWorkspace workspace;

  gemm_rs::RowOrder row_order(int rank) const;
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<GemmReduceScatterPlan> plan_gemm_reduce_scatter(const ParallelGemmDesc& desc, const MachineShape& shape,
                                                       int ranks);

}  // namespace farwarp
