// Wave matrix multiply. AMD Instinct MI300 ISA (CDNA3), "Matrix Arithmetic Instructions".
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

namespace gcn {
typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
typedef short Bf16x4 __attribute__((ext_vector_type(4)));
}  // namespace gcn

// The compiler inserts the wait states that the hardware needs between a matrix instruction and a reader of its result.
template <class T>
FARWARP_DEVICE void mfma(MfmaSums& sums, std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, Half>) {
    sums = __builtin_amdgcn_mfma_f32_16x16x16f16(std::bit_cast<gcn::Half4>(a), std::bit_cast<gcn::Half4>(b), sums, 0, 0,
                                                 0);
  } else {
    sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(std::bit_cast<gcn::Bf16x4>(a), std::bit_cast<gcn::Bf16x4>(b), sums,
                                                     0, 0, 0);
  }
}
template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], std::uint64_t a, std::uint64_t b) {
  MfmaSums four = {sums[0], sums[1], sums[2], sums[3]};
  mfma<T>(four, a, b);
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = four[i];
}

}  // namespace farwarp::FARWARP_TARGET
