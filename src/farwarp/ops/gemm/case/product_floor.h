// The least time of a product, or of several in one launch.
#pragma once

#include <fmt/format.h>

#include "farwarp/harness/case.h"
#include "farwarp/machine/ceilings.h"

namespace farwarp::gemm {

/// The larger of two times: memory moves the bytes; the matrix unit works at its rate while clocks are high, of e4m3
/// numbers at twice that of bf16.
inline harness::Floor product_floor(const Ceilings& ceilings, double gigaflops, double megabytes, bool e4m3) {
  const double rate = ceilings.mma_bf16_tflops_short * (e4m3 ? 2 : 1);
  const double mma_us = rate > 0 ? gigaflops / rate * 1e3 : 0;
  const double memory_us = ceilings.hbm_read_gb_s > 0 ? megabytes / ceilings.hbm_read_gb_s * 1e3 : 0;
  if (mma_us == 0 && memory_us == 0) return {};
  if (mma_us >= memory_us)
    return {mma_us, fmt::format("matrix unit ({:.1f} GFLOP at {:.0f} TFLOP/s); {}", gigaflops, rate, ceilings.source)};
  return {memory_us,
          fmt::format("memory ({:.1f} MB at {:.0f} GB/s); {}", megabytes, ceilings.hbm_read_gb_s, ceilings.source)};
}

}  // namespace farwarp::gemm
