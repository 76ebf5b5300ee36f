#pragma once

#include <cmath>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

inline constexpr float kSmallestNormal = 0x1p-126f;

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

template <class T>
FARWARP_DEVICE std::uint32_t round_pair(float first, float second) {
  return static_cast<std::uint32_t>(round_to<T>(second).bits) << 16 | round_to<T>(first).bits;
}
// Numbers that are not allowed become NaNs, so that their use shows.
template <class T>
FARWARP_DEVICE std::uint64_t round_bounded(FloatPair first, FloatPair second) {
  const auto checked = [](float value) {
    const float magnitude = std::fabs(value);
    return magnitude == 0 || (magnitude >= kSmallestNormal && magnitude <= 0x1p100f) ? value : NAN;
  };
  return std::uint64_t{round_pair<T>(checked(second.first), checked(second.second))} << 32 |
         round_pair<T>(checked(first.first), checked(first.second));
}

FARWARP_DEVICE std::uint32_t to_fp8(const float (&values)[4]) {
  std::uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) bytes |= static_cast<std::uint32_t>(fp8_from(Target::kFp8, values[i])) << (8 * i);
  return bytes;
}
FARWARP_DEVICE void from_fp8(std::uint32_t bytes, float (&values)[4]) {
  for (int i = 0; i < 4; ++i) values[i] = float_from_fp8(Target::kFp8, static_cast<std::uint8_t>(bytes >> (8 * i)));
}

template <class T>
FARWARP_DEVICE void widen_fp8(std::uint32_t bytes, std::uint32_t& even, std::uint32_t& odd) {
  float values[4];
  from_fp8(bytes, values);
  // As Hopper: there the code of NaN is read as a number.
  for (int i = 0; i < 4; ++i) {
    if (Target::kFp8 == Fp8Format::kOcp && std::isnan(values[i]))
      values[i] = bytes >> (8 * i + 7) & 1 ? -480.0f : 480.0f;
  }
  even = round_pair<T>(values[0], values[2]);
  odd = round_pair<T>(values[1], values[3]);
}

FARWARP_DEVICE float fused_multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
// The compiler does not contract these: kernel files are compiled with -ffp-contract=off.
FARWARP_DEVICE float multiply(float a, float b) { return a * b; }
FARWARP_DEVICE float add(float a, float b) { return a + b; }
FARWARP_DEVICE float divide(float a, float b) { return a / b; }
FARWARP_DEVICE float reciprocal(float value) {
  const float result = 1 / value;
  return std::fpclassify(result) == FP_SUBNORMAL ? std::copysign(0.0f, result) : result;
}

FARWARP_DEVICE float maximum(float a, float b) { return std::fmax(a, b); }
FARWARP_DEVICE float exp2(float value) {
  const float result = std::exp2(value);
  return result < kSmallestNormal ? 0.0f : result;
}
FARWARP_DEVICE float log2(float value) { return std::log2(value); }

}  // namespace farwarp::FARWARP_TARGET
