#include "farwarp/ops/parallel_gemm/gemm_ar/plan.h"

#include <fmt/format.h>

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"

namespace farwarp {
namespace {

constexpr int kFewestOwnersColumns = 32;  ///< of Hopper's tiles of few rows that go by owners

constexpr std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// On Hopper, tiles of so few columns do nothing else.
bool is_one_shot(const ParallelGemmDesc& desc, int padded_rows, const MachineShape& shape) {
  if (desc.exchange == ParallelGemmExchange::kBoxes) return false;
  if (shape.traits.matrix_unit == MatrixUnit::kMfma) return desc.m <= gemm_ar::kMostOneShotRows;
  const int columns = desc.tile_columns != 0 ? desc.tile_columns : padded_rows;
  return padded_rows <= tile::kMostFewRows && columns <= gemm_ar::kMostOneShotRows;
}

}  // namespace

Result<GemmAllReducePlan> plan_gemm_all_reduce(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  if (const Status status = parallel_gemm::check(parallel_gemm::Kind::kAllReduce, desc, ranks); !status.ok())
    return status;
  GemmAllReducePlan plan;
  plan.desc = desc;
  ParallelGemmDesc padded = desc;
  padded.m = (desc.m + ranks - 1) / ranks * ranks;
  if (padded.m > parallel_gemm::kMostSize)
    return invalid_argument(fmt::format("ParallelGemmDesc.m is {}; allowed: at most {} with {} ranks", desc.m,
                                        parallel_gemm::kMostSize / ranks * ranks, ranks));
  const bool one_shot = is_one_shot(desc, padded.m, shape);
  if (desc.exchange == ParallelGemmExchange::kWords && !one_shot)
    return invalid_argument(fmt::format("ParallelGemmDesc.exchange is words; allowed: auto, or boxes with m above {}",
                                        gemm_ar::kMostOneShotRows));
  if (desc.exchange == ParallelGemmExchange::kBoxes && padded.m <= tile::kMostFewRows) {
    if (desc.tile_columns != 0 && desc.tile_columns <= gemm_ar::kMostOneShotRows)
      return invalid_argument(fmt::format(
          "ParallelGemmDesc.exchange is boxes; allowed: auto or words with tile_columns {}", desc.tile_columns));
    if (padded.m <= gemm_ar::kMostOneShotRows && desc.tile_columns == 0) padded.tile_columns = kFewestOwnersColumns;
  }
  auto reduce_scatter = gemm_rs::plan_sending(padded, shape, ranks, one_shot ? desc.m : 0);
  if (!reduce_scatter.ok()) return reduce_scatter.status();
  plan.reduce_scatter = std::move(*reduce_scatter);
  const GemmReduceScatterPlan& part = plan.reduce_scatter;
  plan.kernel = "gemm_ar_" + part.kernel_suffix(shape, desc.dtype);
  plan.workspace_bytes = align(part.workspace.total);
  if (!plan.one_shot()) {
    plan.sums = plan.workspace_bytes;
    plan.told = plan.sums + align(std::int64_t{2} * padded.m * desc.n);
    plan.workspace_bytes = plan.told + align(std::int64_t{8} * ranks * gemm_rs::units_of(part.bands));
  }
  return plan;
}

std::int64_t GemmAllReducePlan::heap_bytes() const { return workspace_bytes + align(reduce_scatter.words.bytes()); }

std::string GemmAllReducePlan::to_string() const {
  return fmt::format("{}: {}; {}; {} KB of heap", kernel, reduce_scatter.tile::Tiling::to_string(),
                     one_shot() ? "exchange words, to all ranks" : "exchange boxes, owners add and hand out",
                     heap_bytes() / 1024);
}

}  // namespace farwarp
