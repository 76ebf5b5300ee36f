#include "farwarp/ops/parallel_gemm/gemm_rs/plan.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "farwarp/ops/parallel_gemm/gemm_rs/variants.h"
#include "farwarp/ops/parallel_gemm/rates.h"

namespace farwarp {
namespace {

using gemm_reduce::Crossing;

/// Parts cross while own rows are multiplied: for half of the time. MEASURED.md has what this was derived from.
bool fetching_pays(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  constexpr double kFlopsPerUs = 700e6;
  const double sending = 1.0 * desc.m * desc.n / parallel_gemm::kLinkBytesPerUs;
  const double multiplying = 2.0 * desc.m * desc.n * (desc.k / ranks) / kFlopsPerUs;
  if (sending < 0.55 * multiplying) return true;
  ParallelGemmDesc any_width = desc;  // the exchange, and with it the heap, must not depend on the width
  any_width.tile_columns = 0;
  const auto plan =
      gemm_reduce::make_plan(any_width, shape, ranks, {.fetched = true, .scatters = true}, gemm_rs::kFetchKernels);
  const bool two_rounds = plan.ok() && plan->tiles() <= 2 * plan->blocks;
  return two_rounds && sending < multiplying;
}

Result<Crossing> crossing_of(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  using enum ParallelGemmExchange;
  if (shape.traits.matrix_unit == MatrixUnit::kMfma) return Crossing{.scatters = true};
  const bool can_fetch = ranks == 2 && desc.m % (2 * gemm_reduce::kFetchedRows) == 0 && desc.splits <= 1;
  if (desc.exchange == kFetch && !can_fetch)
    return invalid_argument(
        fmt::format("ParallelGemmDesc.exchange is fetch; allowed: auto, boxes or words, except for 2 ranks, m a "
                    "multiple of {} and splits 0 or 1",
                    2 * gemm_reduce::kFetchedRows));
  const bool few = std::int64_t{2} * desc.m / ranks * desc.n <= gemm_reduce::kMaxOwnedAsWords;
  if (desc.exchange == kWords || (desc.exchange == kAuto && few))
    return Crossing{.word_rows = desc.m / ranks, .scatters = true};
  return Crossing{
      .fetched = desc.exchange == kFetch || (desc.exchange == kAuto && can_fetch && fetching_pays(desc, shape, ranks)),
      .scatters = true};
}

std::span<const tile::Variant> kernels_of(const Crossing& crossing, const MachineShape& shape) {
  if (shape.traits.matrix_unit == MatrixUnit::kMfma) return gemm_rs::kMfmaKernels;
  if (crossing.word_rows != 0) return gemm_rs::kWordsKernels;
  if (crossing.fetched) return gemm_rs::kFetchKernels;
  return gemm_rs::kBoxesKernels;
}

}  // namespace

Result<GemmReduceScatterPlan> plan_gemm_reduce_scatter(const ParallelGemmDesc& desc, const MachineShape& shape,
                                                       int ranks) {
  if (const Status status = check(parallel_gemm::Kind::kReduceScatter, desc, ranks); !status.ok()) return status;
  const auto crossing = crossing_of(desc, shape, ranks);
  if (!crossing.ok()) return crossing.status();
  auto reduce = gemm_reduce::make_plan(desc, shape, ranks, *crossing, kernels_of(*crossing, shape));
  if (!reduce.ok()) return reduce.status();
  GemmReduceScatterPlan plan;
  static_cast<gemm_reduce::Plan&>(plan) = std::move(*reduce);
  return plan;
}

std::string GemmReduceScatterPlan::to_string() const { return fmt::format("{}: {}", kernel, Plan::to_string()); }

}  // namespace farwarp
