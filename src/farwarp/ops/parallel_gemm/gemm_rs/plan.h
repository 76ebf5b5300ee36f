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
  // Of partial sums that go by packets, PacketInbox stands in the place of these two.
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
  gemm_rs::PacketInbox packets{};  ///< without rows: boxes and flags
  GemmReduceScatterWorkspace workspace;

  gemm_rs::RowOrder row_order(int rank) const;
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<GemmReduceScatterPlan> plan_gemm_reduce_scatter(const ParallelGemmDesc& desc, const MachineShape& shape,
                                                       int ranks);

namespace gemm_rs {

/// On Hopper, up to as many bytes of partial sums of a rank go by packets where rows are few. Packets double the bytes: a MiB more takes
/// 3 us at the 343 GB/s that leave each of 8 H200s when all send (2026-11), and what they save, the wait for copies to complete, a release
/// fence and a flag, takes 2 to 6 us behind a busy link.
inline constexpr std::int64_t kMostPacketPayload = std::int64_t{1} << 20;

/// The plan of a product whose partial sums go by packets into inboxes of `packet_rows` rows, or by boxes and flags if 0; of a `desc`
/// that has passed parallel_gemm::check().
Result<GemmReduceScatterPlan> plan_sending(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks,
                                           int packet_rows);

}  // namespace gemm_rs
}  // namespace farwarp
