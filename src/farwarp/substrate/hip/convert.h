#pragma once

#include <bit>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE float to_float(Half value) { return static_cast<float>(std::bit_cast<_Float16>(value.bits)); }
FARWARP_DEVICE float to_float(Bf16 value) { return float_from(value); }

// v_cvt_f16_f32 keeps a NaN's payload; the other targets give 0x7fff. gfx942 has no instruction for bf16.
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

FARWARP_DEVICE float fused_multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

FARWARP_DEVICE float multiply(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}
FARWARP_DEVICE float add(float a, float b) {
#pragma clang fp contract(off)
  return a + b;
}

}  // namespace farwarp::FARWARP_TARGET
