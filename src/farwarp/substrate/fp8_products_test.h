// The kernel of fp8_products_test.cc: sums[64 x 64] += A[64 x 128] * B[64 x 128]^T of fp8 numbers, by one warpgroup.
#pragma once

#include <cstdint>

namespace farwarp {

inline constexpr int kFp8TestRows = 64, kFp8TestDepth = 128;
inline constexpr int kFp8TestSharedBytes = 2 * kFp8TestRows * kFp8TestDepth;

struct Fp8ProductsArgs {
  const std::uint8_t* a;  ///< [64, 128]
  const std::uint8_t* b;  ///< [64, 128]: rows are the columns of the sums
  float* sums;            ///< [64, 64], read and written
  std::int32_t first_k;   ///< of the instructions that run
  std::int32_t last_k;
};

}  // namespace farwarp
