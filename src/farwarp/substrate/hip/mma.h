// Wave matrix multiply. AMD Instinct MI300 ISA (CDNA3), "Matrix Arithmetic Instructions".
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

namespace gcn {
typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
typedef short Bf16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 Half8 __attribute__((ext_vector_type(8)));
typedef __bf16 Bf16x8 __attribute__((ext_vector_type(8)));
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
FARWARP_DEVICE void mfma(MfmaSums& sums, Vec16 a, Vec16 b) {
#if defined(__gfx950__)
  if constexpr (std::is_same_v<T, Half>) {
    sums = __builtin_amdgcn_mfma_f32_16x16x32_f16(std::bit_cast<gcn::Half8>(a), std::bit_cast<gcn::Half8>(b), sums, 0,
                                                  0, 0);
  } else {
    sums = __builtin_amdgcn_mfma_f32_16x16x32_bf16(std::bit_cast<gcn::Bf16x8>(a), std::bit_cast<gcn::Bf16x8>(b), sums,
                                                   0, 0, 0);
  }
#else
  mfma<T>(sums, a.lo, b.lo);
  mfma<T>(sums, a.hi, b.hi);
#endif
}

template <class T, class Operand>
FARWARP_DEVICE void mfma_array(float (&sums)[4], Operand a, Operand b) {
  MfmaSums four = {sums[0], sums[1], sums[2], sums[3]};
  mfma<T>(four, a, b);
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = four[i];
}
template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], std::uint64_t a, std::uint64_t b) {
  mfma_array<T>(sums, a, b);
}
template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], Vec16 a, Vec16 b) {
  mfma_array<T>(sums, a, b);
}

template <class T>
FARWARP_DEVICE void mfma32(Mfma32Sums& sums, Vec16 a, Vec16 b) {
  constexpr bool kHalf = std::is_same_v<T, Half>;
#if defined(__gfx950__)
  if constexpr (kHalf) {
    sums = __builtin_amdgcn_mfma_f32_32x32x16_f16(std::bit_cast<gcn::Half8>(a), std::bit_cast<gcn::Half8>(b), sums, 0,
                                                  0, 0);
  } else {
    sums = __builtin_amdgcn_mfma_f32_32x32x16_bf16(std::bit_cast<gcn::Bf16x8>(a), std::bit_cast<gcn::Bf16x8>(b), sums,
                                                   0, 0, 0);
  }
#else
  const auto eight = [&sums](std::uint64_t of_a, std::uint64_t of_b) {
    if constexpr (kHalf) {
      sums = __builtin_amdgcn_mfma_f32_32x32x8f16(std::bit_cast<gcn::Half4>(of_a), std::bit_cast<gcn::Half4>(of_b),
                                                  sums, 0, 0, 0);
    } else {
      sums = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(std::bit_cast<gcn::Bf16x4>(of_a),
                                                      std::bit_cast<gcn::Bf16x4>(of_b), sums, 0, 0, 0);
    }
  };
  eight(a.lo, b.lo);
  eight(a.hi, b.hi);
#endif
}

}  // namespace farwarp::FARWARP_TARGET
