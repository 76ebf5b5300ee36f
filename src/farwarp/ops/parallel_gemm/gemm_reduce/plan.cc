#include "farwarp/ops/parallel_gemm/gemm_reduce/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"
#include "farwarp/tile/gemm/shape_wgmma.h"

namespace farwarp::gemm_reduce {
namespace {

using parallel_gemm::Kind;

static_assert(kFetchedRows == tile::kWgmmaRows);

/// Bytes that a block loads in a clock if w is read from memory, with swap_ab: 60 to 80 GB/s (H200, 2026-11).
constexpr double kSwapAbBytesPerClock = 40;
/// Clocks to send a column of a swap_ab tile as words and to add it up. Splits share them. Derived from times on two
/// H200s (2026-11):
/// gemm_ar/MEASURED.md.
constexpr double kSwapAbColumnClocks = 145;

/// The kernels have the columns of a band as a constant, too: ByBoxes::kBandColumns.
Bands bands_of(const tile::Tiling& tiling, const MachineShape& shape, const ParallelGemmDesc& desc, int ranks) {
  if (shape.traits.matrix_unit == MatrixUnit::kMfma)
    return make_bands(tiling.rows, tiling.columns, desc.m, desc.n, ranks);
  constexpr int kHalf = 64;  // rows of a tile that one warpgroup multiplies
  return tiling.swap_ab ? make_bands(tiling.columns, kHalf, desc.m, desc.n, ranks)
                        : make_bands(kHalf, tiling.columns, desc.m, desc.n, ranks);
}

/// Sets the offsets of everything in the heap.
void lay_out(Plan& plan) {
  Workspace& workspace = plan.workspace;
  std::int64_t end = 0;
  const auto take = [&end](std::int64_t bytes) {
    const std::int64_t start = end;
    end = (end + bytes + 255) / 256 * 256;
    return start;
  };
  if (plan.word_inbox.rows == 0) {
    workspace.inbox = take(std::int64_t{plan.desc.m} * plan.desc.n * 2 / (plan.fetched ? plan.ranks : 1));
    workspace.flags = take(std::int64_t{8} * plan.ranks * plan.bands.row_count * plan.bands.column_count);
    workspace.ready_cells = take(8 * kMaxRanks);
  }
  workspace.partials = take(plan.partial_sums_bytes);
  workspace.counters = take(plan.workspace_bytes - plan.partial_sums_bytes);
  workspace.total = end;
}

}  // namespace

Result<Plan> make_plan(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks, Crossing crossing,
                       std::span<const tile::Variant> kernels) {
  Plan plan;
  plan.desc = desc;
  plan.ranks = ranks;
  plan.fetched = crossing.fetched;
  plan.scatters = crossing.scatters;
  if (shape.traits.matrix_unit == MatrixUnit::kMfma && desc.exchange != ParallelGemmExchange::kAuto)
    return invalid_argument(fmt::format("ParallelGemmDesc.exchange is {}; allowed: auto here", name_of(desc.exchange)));
  const int k = parallel_gemm::local_shape(Kind::kReduceScatter, desc, ranks).k;
  if (shape.traits.matrix_unit == MatrixUnit::kMfma && k > kMfmaMostPitch)
    return invalid_argument(fmt::format("ParallelGemmDesc.k is {}; allowed: at most {} with {} ranks here", desc.k,
                                        kMfmaMostPitch * ranks, ranks));
  // Chunks are counted in 31 bits. They have at least 256 elements as words and 512 by boxes, so this bound suffices
  // from 3 and 2 ranks on. With fewer ranks an inbox that exceeds 31 bits would have 2 TiB or more.
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;
  if (std::int64_t{desc.m} * desc.n > kMaxElements)
    return invalid_argument(fmt::format("ParallelGemmDesc.m is {}; allowed: at most {} with n = {}", desc.m,
                                        kMaxElements / desc.n, desc.n));
  const int blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  const bool words = crossing.word_rows != 0, wgmma = shape.traits.matrix_unit == MatrixUnit::kWgmma;
  const bool clusters = words && wgmma && desc.m <= tile::kMaxSwapAbRows;
  const tile::TilingRequest request{.m = desc.m,
                                    .n = desc.n,
                                    .k = k,
                                    .dtype = desc.dtype,
                                    .kernels = kernels,
                                    .blocks = blocks,
                                    .columns = desc.tile_columns,
                                    .splits = crossing.fetched ? 1 : desc.splits,
                                    .clusters = clusters,
                                    .boxes_of_256 = crossing.fetched ? kFetchBoxesOf256 : tile::kSendBoxesOf256,
                                    .bytes_per_clock = clusters ? kSwapAbBytesPerClock : tile::kL2BytesPerClock,
                                    .all_resident = true,
                                    .column_clocks = clusters ? kSwapAbColumnClocks : tile::kStoreColumnClocks};
  const auto tiling = tile::tile_product(request, shape, "ParallelGemmDesc");
  if (!tiling.ok()) return tiling.status();
  static_cast<tile::Tiling&>(plan) = *tiling;
  // Rows of tiles that are computed side by side: as many of each owner, or of one owner, so that chunks can follow
  // them.
  if (const RowOrder order = plan.row_order(0); wgmma && order.ranks != 0)
    plan.group = std::max(1, plan.group / order.ranks) * order.ranks;
  if (const int owned = desc.m / ranks; wgmma && plan.own_last() && !plan.swap_ab && owned % plan.rows == 0)
    plan.group = std::min(plan.group, owned / plan.rows);
  plan.bands = bands_of(*tiling, shape, desc, ranks);
  if (wgmma && !plan.swap_ab) plan.bands.chunk_group = chunk_group_of(plan.row_order(0), plan.rows, plan.group);
  if (words)
    plan.word_inbox = {0, ranks, crossing.word_rows, desc.n / WordInbox::kElements,
                       chunk_group_of(plan.row_order(0), plan.rows, plan.group, kWordChunkRows)};
  lay_out(plan);
  return plan;
}

RowOrder Plan::row_order(int rank) const {
  return swap_ab ? in_order(tile_row_count) : make_row_order(rows, tile_row_count, desc.m, rank, ranks, own_last());
}

std::int64_t Plan::heap_bytes() const { return workspace.total + (word_inbox.bytes() + 255) / 256 * 256; }

std::string Plan::to_string() const {
  const bool alternate = row_order(0).ranks != 0;
  const std::string sending =
      word_inbox.rows != 0
          ? "words"
          : fmt::format("boxes{} in bands of {} x {}", fetched ? " that owners fetch" : "", bands.rows, bands.columns);
  return fmt::format("{}; exchange {}, {}; {} KB of heap", Tiling::to_string(), sending,
                     alternate ? "owners alternate" : "owners one after another", heap_bytes() / 1024);
}

}  // namespace farwarp::gemm_reduce
