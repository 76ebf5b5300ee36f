// Wave matrix multiply. AMD Instinct MI300 ISA (CDNA3), "Matrix Arithmetic Instructions".
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

namespace gcn {
typedef float Float4 __attribute__((ext_vector_type(4)));
typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
typedef short Bf16x4 __attribute__((ext_vector_type(4)));
}  // namespace gcn

// The compiler inserts the wait states that the hardware needs between a matrix instruction and a reader of its result.
template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], std::uint64_t a, std::uint64_t b) {
  gcn::Float4 d = {sums[0], sums[1], sums[2], sums[3]};
  if constexpr (std::is_same_v<T, Half>) {
    d = __builtin_amdgcn_mfma_f32_16x16x16f16(std::bit_cast<gcn::Half4>(a), std::bit_cast<gcn::Half4>(b), d, 0, 0, 0);
  } else {
    d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(std::bit_cast<gcn::Bf16x4>(a), std::bit_cast<gcn::Bf16x4>(b), d, 0, 0,
                                                  0);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = d[i];
}

}  // namespace farwarp::FARWARP_TARGET
