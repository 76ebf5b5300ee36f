#include "farwarp/ops/parallel_gemm/gemm_ar/plan.h"

#include <fmt/format.h>

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"

namespace farwarp {
namespace {

constexpr std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

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
  auto reduce_scatter = plan_gemm_reduce_scatter(padded, shape, ranks);
  if (!reduce_scatter.ok()) return reduce_scatter.status();
  plan.reduce_scatter = std::move(*reduce_scatter);
  const GemmReduceScatterPlan& part = plan.reduce_scatter;
  plan.kernel = "gemm_ar_" + part.kernel_suffix(shape, desc.dtype);
  const bool wgmma = shape.traits.matrix_unit == MatrixUnit::kWgmma;
  plan.one_shot =
      wgmma ? part.few_rows && part.columns <= gemm_ar::kMostOneShotRows : desc.m <= gemm_ar::kMostOneShotRows;
  plan.sums = align(part.workspace.total);
  plan.told = plan.sums + (plan.one_shot ? 0 : align(std::int64_t{2} * padded.m * desc.n));
  plan.packets = plan.told + align(std::int64_t{8} * ranks * gemm_rs::units_of(part.bands));
  plan.heap_bytes = plan.packets + (plan.one_shot ? std::int64_t{2} * ranks * desc.m * (desc.n / 4) * 16 : 0);
  return plan;
}

std::string GemmAllReducePlan::to_string() const {
  return fmt::format("{}: {}; {}; {} KB of heap", kernel, reduce_scatter.tile::Tiling::to_string(),
                     one_shot ? "packets to all ranks" : "owners add and hand out", heap_bytes / 1024);
}

}  // namespace farwarp
