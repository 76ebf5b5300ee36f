#pragma once

#include <bit>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE float to_float(Half value) { return static_cast<float>(std::bit_cast<_Float16>(value.bits)); }
FARWARP_DEVICE float to_float(Bf16 value) { return float_from(value); }

// v_cvt_f16_f32 keeps a NaN's payload; the other targets return 0x7fff. gfx942 has no instruction for bf16.
template <class T>
FARWARP_DEVICE T round_to(float value) {
  static_assert(std::is_same_v<T, Half> || std::is_same_v<T, Bf16>);
  if constexpr (std::is_same_v<T, Half>) {
    if (value != value) return Half{0x7fff};
    return Half{std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))};
  } else {
    return bf16_from(value);
  }
}

template <class T>
FARWARP_DEVICE std::uint32_t round_pair(float first, float second) {
  return static_cast<std::uint32_t>(round_to<T>(second).bits) << 16 | round_to<T>(first).bits;
}

/// A mode bit decides whether the conversions saturate, so this function clamps to the largest number first. A NaN stays a NaN.
FARWARP_DEVICE std::uint32_t to_fp8(const float (&values)[4]) {
  constexpr float kLargest = largest_fp8(Target::kFp8);
  float within[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    within[i] = values[i] > kLargest ? kLargest : values[i] < -kLargest ? -kLargest : values[i];
  }
  const int lower = __builtin_amdgcn_cvt_pk_fp8_f32(within[0], within[1], 0, false);
  return static_cast<std::uint32_t>(__builtin_amdgcn_cvt_pk_fp8_f32(within[2], within[3], lower, true));
}
FARWARP_DEVICE void from_fp8(std::uint32_t bytes, float (&values)[4]) {
  const auto word = static_cast<int>(bytes);
  values[0] = __builtin_amdgcn_cvt_f32_fp8(word, 0);
  values[1] = __builtin_amdgcn_cvt_f32_fp8(word, 1);
  values[2] = __builtin_amdgcn_cvt_f32_fp8(word, 2);
  values[3] = __builtin_amdgcn_cvt_f32_fp8(word, 3);
}

FARWARP_DEVICE float fused_multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

FARWARP_DEVICE float multiply(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}
FARWARP_DEVICE float add(float a, float b) {
#pragma clang fp contract(off)
  return a + b;
}
FARWARP_DEVICE float divide(float a, float b) { return a / b; }
FARWARP_DEVICE float maximum(float a, float b) { return __builtin_fmaxf(a, b); }
// v_exp_f32 and v_log_f32 take and give no denormals.
FARWARP_DEVICE float exp2(float value) { return __builtin_amdgcn_exp2f(value); }
FARWARP_DEVICE float log2(float value) { return __builtin_amdgcn_logf(value); }

}  // namespace farwarp::FARWARP_TARGET
