#include "farwarp/ops/parallel_gemm/gemm_ar/plan.h"

#include <fmt/format.h>

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"

namespace farwarp {
namespace {

constexpr std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// On Hopper, tiles of so few columns do nothing else.
bool is_one_shot(const ParallelGemmDesc& desc, int padded_rows, const MachineShape& shape) {
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
  auto reduce_scatter = gemm_rs::plan_sending(padded, shape, ranks, is_one_shot(desc, padded.m, shape) ? desc.m : 0);
  if (!reduce_scatter.ok()) return reduce_scatter.status();
  plan.reduce_scatter = std::move(*reduce_scatter);
  const GemmReduceScatterPlan& part = plan.reduce_scatter;
  plan.kernel = "gemm_ar_" + part.kernel_suffix(shape, desc.dtype);
  plan.heap_bytes = align(part.workspace.total);
  if (!plan.one_shot()) {
    plan.sums = plan.heap_bytes;
    plan.told = plan.sums + align(std::int64_t{2} * padded.m * desc.n);
    plan.heap_bytes = plan.told + align(std::int64_t{8} * ranks * gemm_rs::units_of(part.bands));
  }
  return plan;
}

std::string GemmAllReducePlan::to_string() const {
  return fmt::format("{}: {}; {}; {} KB of heap", kernel, reduce_scatter.tile::Tiling::to_string(),
                     one_shot() ? "packets to all ranks" : "owners add and hand out", heap_bytes / 1024);
}

}  // namespace farwarp
