// Desc + machine -> plan of a product whose rows have owners, which add up the partial sums of all ranks: what gemm-rs and gemm-ar
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
  // Of partial sums that go as words, WordInbox stands in the place of these three.
  std::int64_t inbox = 0;        ///< [ranks][m / ranks][n] of the dtype: each rank's partial sums of this rank's rows
  std::int64_t flags = 0;        ///< [ranks][bands.row_count][bands.column_count] cells of 8 bytes: epoch << 32
  std::int64_t ready_cells = 0;  ///< [kMaxRanks] cells: world/device/wait.dev.h
  std::int64_t partials = 0;     ///< of splits: tile/gemm/split_k.dev.h
  std::int64_t counters = 0;
  std::int64_t total = 0;
};

struct Plan : tile::Tiling {
  ParallelGemmDesc desc;
  int ranks = 0;
  Bands bands{};
  WordInbox word_inbox{};  ///< without rows: boxes and flags
  Workspace workspace;

  RowOrder row_order(int rank) const;
  /// Of the workspace and the inbox of words.
  std::int64_t heap_bytes() const;
  std::string to_string() const;
};

/// On Hopper, partial sums go as words up to as many bytes of y where nothing else is asked for. Words save the wait for copies to complete, a
/// release fence and a flag; but of what a rank adds up a lane has one vector of each source under way. On 2 H200s (2026-11) words and boxes take
/// 22.4 and 28.5 us at 64 x 7168 x 4608 (packets 24.3), 30.1 and 31.9 at 512 x 4096 x 3072, with 2 MiB of y, 39.2 and 37.5 at 2048 x 2880 x 720,
/// with 5.6 MiB, 97.6 and 71.2 at 4096 x 4096 x 1024, with 16.
inline constexpr std::int64_t kMostOwnedAsWords = std::int64_t{2} << 20;

/// The plan of a product whose partial sums are sent as words into inboxes of `word_rows` rows, or in boxes with flags if 0. `desc` has
/// passed parallel_gemm::check(). `kernels`: to choose from. kInvalidArgument names the field, its value and what is allowed.
Result<Plan> make_plan(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks, int word_rows,
                       std::span<const tile::Variant> kernels);

}  // namespace farwarp::gemm_reduce
