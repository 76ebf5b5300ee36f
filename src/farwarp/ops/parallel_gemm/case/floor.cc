#include "farwarp/ops/parallel_gemm/case/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace farwarp::parallel_gemm {
namespace {

constexpr double kElementBytes = 2;

double link_bytes(Kind kind, const ParallelGemmDesc& desc, int ranks) {
  const double others = ranks - 1, m = desc.m, of_each = kElementBytes / ranks;
  switch (kind) {
    case Kind::kAllGather: return others * m * desc.k * of_each;
    case Kind::kReduceScatter: return others * m * desc.n * of_each;
    case Kind::kAllReduce: return std::ceil(2 * others * m * desc.n * of_each);
  }
  return 0;
}

}  // namespace

Cost cost_of(Kind kind, const ParallelGemmDesc& desc, int ranks) {
  const LocalShape local = local_shape(kind, desc, ranks);
  const double x = double{1} * local.x_rows * local.k, w = double{1} * local.w_rows * local.k,
               y = double{1} * local.y_rows * local.y_columns;
  return {2.0 * desc.m * desc.n * desc.k / ranks, kElementBytes * (x + w + y), link_bytes(kind, desc, ranks)};
}

harness::Floor floor_of(Kind kind, const ParallelGemmDesc& desc, int ranks, const Ceilings& ceilings) {
  const Cost work = cost_of(kind, desc, ranks);
  const double link = std::max(ceilings.link_all_store_gb_s, ceilings.link_all_bulk_gb_s);
  const auto us = [](double amount, double per_us) { return per_us > 0 ? amount / per_us : 0; };
  const double mma_us = us(work.flops * 1e-6, ceilings.mma_bf16_tflops_short);
  const double memory_us = us(work.memory_bytes * 1e-3, ceilings.hbm_read_gb_s);
  const double link_us = us(work.link_bytes * 1e-3, link);
  const double most = std::max({mma_us, memory_us, link_us});
  if (most == 0) return {};
  if (most == mma_us)
    return {most, fmt::format("matrix unit ({:.1f} GFLOP at {:.0f} TFLOP/s); {}", work.flops * 1e-9,
                              ceilings.mma_bf16_tflops_short, ceilings.source)};
  if (most == link_us)
    return {most, fmt::format("link ({:.1f} MB at {:.0f} GB/s); {}", work.link_bytes * 1e-6, link, ceilings.source)};
  return {most, fmt::format("memory ({:.1f} MB at {:.0f} GB/s); {}", work.memory_bytes * 1e-6, ceilings.hbm_read_gb_s,
                            ceilings.source)};
}

}  // namespace farwarp::parallel_gemm
