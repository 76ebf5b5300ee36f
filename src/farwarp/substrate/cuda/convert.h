#pragma once

#include <bit>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE float to_float(Half value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}

FARWARP_DEVICE float to_float(Bf16 value) { return float_from(value); }

template <class T>
FARWARP_DEVICE T round_to(float value) {
  static_assert(std::is_same_v<T, Half> || std::is_same_v<T, Bf16>);
  T result;
  if constexpr (std::is_same_v<T, Half>)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  else
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}

FARWARP_DEVICE float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FARWARP_DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
FARWARP_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }

}  // namespace farwarp::FARWARP_TARGET
