// Desc + machine -> plan of a product whose rows have owners, which add up the partial sums of all ranks: the part that gemm-rs and gemm-ar
// share. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/layout.h"
#include "farwarp/tile/gemm/tiling.h"

namespace farwarp::gemm_reduce {

/// Where everything lies in the workspace, in bytes.
struct Workspace {
  // The next three are for boxes and flags; words use WordInbox instead.
  std::int64_t inbox = 0;        ///< [ranks][m / ranks][n] of the dtype: each rank's partial sums of this rank's rows
  std::int64_t flags = 0;        ///< [ranks][bands.row_count][bands.column_count] cells of 8 bytes: epoch << 32
  std::int64_t ready_cells = 0;  ///< [kMaxRanks] cells: world/device/wait.dev.h
  std::int64_t partials = 0;     ///< partial sums of splits, and their counters: tile/gemm/split_k.dev.h
  std::int64_t counters = 0;
  std::int64_t total = 0;
};

struct Plan : tile::Tiling {
  ParallelGemmDesc desc;
  int ranks = 0;
  Bands bands{};
  WordInbox word_inbox{};  ///< 0 rows: boxes and flags
  Workspace workspace;

  RowOrder row_order(int rank) const;
  /// Bytes of the workspace and the inbox of words.
  std::int64_t heap_bytes() const;
  std::string to_string() const;
};

/// On Hopper, kAuto sends partial sums as words where a rank owns at most this many bytes of y. Words save the wait for completed copies, a
/// release fence and a flag, but a lane loads one vector of each source at a time. On 2 H200s (2026-11) words are faster at 2 MiB, and
/// boxes at 5.6 MiB and more; see gemm_rs/MEASURED.md.
inline constexpr std::int64_t kMostOwnedAsWords = std::int64_t{2} << 20;

/// `word_rows`: partial sums go as words into inboxes of that many rows; 0: in boxes with flags. `desc` has passed parallel_gemm::check().
/// `kernels`: to choose from. kInvalidArgument names the field, its value and what is allowed.
Result<Plan> make_plan(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks, int word_rows,
                       std::span<const tile::Variant> kernels);

}  // namespace farwarp::gemm_reduce
