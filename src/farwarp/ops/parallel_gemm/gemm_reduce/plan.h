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
  // The first three are only for partial sums that cross as boxes with flags; words have a WordInbox instead.
  /// [ranks][m / ranks][n] of the dtype: each rank's partial sums of this rank's rows. If the owner fetches them,
  /// [m / 2][n]: this rank's partial sums of the peer's rows.
  std::int64_t inbox = 0;
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
  WordInbox word_inbox{};  ///< rows is 0: partial sums cross as boxes with flags
  bool fetched = false;    ///< two ranks: the owner loads the peer's boxes
  bool scatters = false;   ///< owners keep the sum (gemm-rs); else they send it on (gemm-ar)
  Workspace workspace;

  RowOrder row_order(int rank) const;
  /// Two ranks compute the peer's rows first and their own while those cross: if the owner fetches them, or in gemm-rs
  /// if all tiles run at once (512 rows: 50.4 us against 62.4, two H200s, 2026-11-28). Not measured in gemm-ar.
  bool own_last() const { return ranks == 2 && scatters && (fetched || tiles() * splits <= blocks); }
  /// Bytes of the workspace and the inbox of words.
  std::int64_t heap_bytes() const;
  std::string to_string() const;
};

/// On Hopper, if the descriptor leaves the choice: partial sums are sent as words if the rows of y that a rank owns
/// have at most so many bytes. Words need no wait for copies to complete, no release fence and no flag, but their
/// reader has only one vector of each source under way. gemm_rs/MEASURED.md has times.
inline constexpr std::int64_t kMaxOwnedAsWords = std::int64_t{3} << 20;

/// Rows of a tile, and so of what two ranks own where they fetch each other's sums: they own whole rows of tiles.
inline constexpr int kFetchedRows = 128;

/// How partial sums cross.
struct Crossing {
  int word_rows = 0;      ///< rows of the inbox of words; 0: boxes with flags
  bool fetched = false;   ///< two ranks, m a multiple of 2 * kFetchedRows: the owner loads the peer's boxes
  bool scatters = false;  ///< Plan::scatters
};

/// `kernels`: the variants to choose from. `desc` must have passed parallel_gemm::check(). kInvalidArgument names the
/// field, its value and what is allowed.
Result<Plan> make_plan(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks, Crossing crossing,
                       std::span<const tile::Variant> kernels);

}  // namespace farwarp::gemm_reduce
