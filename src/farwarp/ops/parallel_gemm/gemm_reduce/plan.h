// The plan of a product whose rows have owners, which add up the partial sums of all ranks: what gemm-rs and gemm-ar
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
  // The first three are only for partial sums that are sent as boxes with flags; words have a WordInbox instead.
  std::int64_t inbox = 0;        ///< [ranks][m / ranks][n] of the dtype: each rank's partial sums of this rank's rows
  std::int64_t flags = 0;        ///< [ranks][bands.row_count][bands.column_count] cells of 8 bytes: epoch << 32
  std::int64_t ready_cells = 0;  ///< [kMaxRanks] cells: world/device/wait.dev.h
  std::int64_t partials =
      0;  ///< of this rank's splits (peers' are in inbox), and their counters: tile/gemm/split_k.dev.h
  std::int64_t counters = 0;
  std::int64_t total = 0;
};

struct Plan : tile::Tiling {
  ParallelGemmDesc desc;
  int ranks = 0;
  Bands bands{};
  WordInbox word_inbox{};  ///< rows is 0: partial sums are sent as boxes with flags
  Workspace workspace;

  RowOrder row_order(int rank) const;
  /// Bytes of the workspace and the inbox of words.
  std::int64_t heap_bytes() const;
  std::string to_string() const;
};

/// On Hopper, if the descriptor leaves the choice: partial sums are sent as words if the rows of y that a rank owns
/// have at most so many bytes. Words need no wait for copies to complete, no release fence and no flag, but their
/// reader has only one vector of each source under way. gemm_rs/MEASURED.md has times.
inline constexpr std::int64_t kMaxOwnedAsWords = std::int64_t{3} << 20;

/// `word_rows`: rows of the inbox of words; 0: boxes with flags. `kernels`: the variants to choose from. `desc` must
/// have passed parallel_gemm::check(). kInvalidArgument names the field, its value and what is allowed.
Result<Plan> make_plan(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks, int word_rows,
                       std::span<const tile::Variant> kernels);

}  // namespace farwarp::gemm_reduce
