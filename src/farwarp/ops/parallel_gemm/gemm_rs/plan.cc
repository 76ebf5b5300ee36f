#include "farwarp/ops/parallel_gemm/gemm_rs/plan.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "farwarp/ops/parallel_gemm/gemm_rs/variants.h"

namespace farwarp {

Result<GemmReduceScatterPlan> plan_gemm_reduce_scatter(const ParallelGemmDesc& desc, const MachineShape& shape,
                                                       int ranks) {
  if (const Status status = check(parallel_gemm::Kind::kReduceScatter, desc, ranks); !status.ok()) return status;
  const bool words = desc.exchange == ParallelGemmExchange::kWords ||
                     (desc.exchange == ParallelGemmExchange::kAuto && shape.traits.matrix_unit == MatrixUnit::kWgmma &&
                      std::int64_t{2} * desc.m / ranks * desc.n <= gemm_reduce::kMaxOwnedAsWords);
  std::span<const tile::Variant> kernels =
      words ? std::span<const tile::Variant>(gemm_rs::kWordsKernels) : gemm_rs::kBoxesKernels;
  if (shape.traits.matrix_unit == MatrixUnit::kMfma) kernels = gemm_rs::kMfmaKernels;
  auto reduce = gemm_reduce::make_plan(desc, shape, ranks, words ? desc.m / ranks : 0, kernels);
  if (!reduce.ok()) return reduce.status();
  GemmReduceScatterPlan plan;
  static_cast<gemm_reduce::Plan&>(plan) = std::move(*reduce);
  return plan;
}

std::string GemmReduceScatterPlan::to_string() const { return fmt::format("{}: {}", kernel, Plan::to_string()); }

}  // namespace farwarp
