// The argument block of the oracle's kernel.
#pragma once

#include <cstdint>

namespace farwarp::gemm {

/// values = x * w^T + bias and squares = the sums of the squared products; contiguous, 16-byte aligned, k a multiple of
/// 8.
struct PartialSumsArgs {
  const void* x;     ///< [rows, k]
  const void* w;     ///< [columns, k]
  const void* bias;  ///< [columns], or null
  float* values;     ///< [rows, columns]
  float* squares;    ///< [rows, columns]
  std::int32_t rows;
  std::int32_t columns;
  std::int32_t k;
  std::int32_t bf16;  ///< 1: bf16, 0: fp16
};

inline constexpr int kPartialSumsThreads = 256;
inline constexpr int kPartialSumsRows = 4;  ///< rows of one thread

/// Threads that have work.
constexpr std::int64_t partial_sums_threads(const PartialSumsArgs& args) {
  return (std::int64_t{args.rows} + kPartialSumsRows - 1) / kPartialSumsRows * args.columns;
}

}  // namespace farwarp::gemm
