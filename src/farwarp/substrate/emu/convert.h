#pragma once

#include <cmath>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE float to_float(Half value) { return float_from(value); }
FARWARP_DEVICE float to_float(Bf16 value) { return float_from(value); }

template <class T>
FARWARP_DEVICE T round_to(float value) {
  static_assert(std::is_same_v<T, Half> || std::is_same_v<T, Bf16>);
  if constexpr (std::is_same_v<T, Half>) {
    return half_from(value);
  } else {
    return bf16_from(value);
  }
}

FARWARP_DEVICE float fused_multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
// Kernel files are compiled with -ffp-contract=off.
FARWARP_DEVICE float multiply(float a, float b) { return a * b; }
FARWARP_DEVICE float add(float a, float b) { return a + b; }

}  // namespace farwarp::FARWARP_TARGET
