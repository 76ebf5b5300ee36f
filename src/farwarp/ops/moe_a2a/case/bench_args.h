// The argument block of the bench's expert kernel.
#pragma once

#include <cstdint>

namespace farwarp::moe {

struct BenchExpertArgs {
  const void* x;                ///< dispatched rows
  const float* scales;          ///< of fp8 rows; null: rows are of the outputs' dtype
  void* y;                      ///< their outputs, in the same order
  const std::int32_t* counts;   ///< [local experts]
  const std::int32_t* offsets;  ///< [local experts + 1]
  const float* table;           ///< [local experts] of (scale, shift)
  std::int32_t local_experts;
  std::int32_t hidden;
  std::int32_t bf16;  ///< 1: bf16, 0: fp16
};

inline constexpr int kBenchExpertThreads = 256;

}  // namespace farwarp::moe
