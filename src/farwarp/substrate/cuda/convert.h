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

template <class T>
FARWARP_DEVICE std::uint32_t round_pair(float first, float second) {
  static_assert(std::is_same_v<T, Half> || std::is_same_v<T, Bf16>);
  std::uint32_t result;
  if constexpr (std::is_same_v<T, Half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  return result;
}
template <class T>
FARWARP_DEVICE std::uint64_t round_bounded(FloatPair first, FloatPair second) {
  return std::uint64_t{round_pair<T>(second.first, second.second)} << 32 | round_pair<T>(first.first, first.second);
}

FARWARP_DEVICE std::uint32_t to_fp8(const float (&values)[4]) {
  std::uint16_t lower, upper;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(lower) : "f"(values[1]), "f"(values[0]));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(upper) : "f"(values[3]), "f"(values[2]));
  return static_cast<std::uint32_t>(upper) << 16 | lower;
}
FARWARP_DEVICE void from_fp8(std::uint32_t bytes, float (&values)[4]) {
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(bytes >> (16 * pair))));
    values[2 * pair] = to_float(Half{static_cast<std::uint16_t>(halves)});
    values[2 * pair + 1] = to_float(Half{static_cast<std::uint16_t>(halves >> 16)});
  }
}

// An e4m3 number's exponent and mantissa, moved to those of T, are the number times a power of two, also where it is
// denormal: T's bias is greater than e4m3's, which is 7.
template <class T>
FARWARP_DEVICE void widen_fp8(std::uint32_t bytes, std::uint32_t& even, std::uint32_t& odd) {
  constexpr bool kHalf = std::is_same_v<T, Half>;
  constexpr int kShift = kHalf ? 1 : 4;                               // e4m3 has 4 bits of exponent, T has 5 or 8
  constexpr std::uint32_t kFactor = kHalf ? 0x5c005c00 : 0x7b807b80;  // 2^8: biases 15 and 7; 2^120: 127 and 7
  constexpr std::uint32_t kMagnitude = kHalf ? 0x3f803f80 : 0x07f007f0, kSign = 0x80008000;
  const std::uint32_t upper[2] = {bytes << 8, bytes};  // each with two numbers in the upper bytes of its halves
  std::uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    words[i] = (upper[i] >> kShift & kMagnitude) | (upper[i] & kSign);
    if constexpr (kHalf)
      asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(words[i]) : "r"(kFactor));
    else
      asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(words[i]) : "r"(kFactor));
  }
  even = words[0];
  odd = words[1];
}

FARWARP_DEVICE float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FARWARP_DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
FARWARP_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
FARWARP_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
FARWARP_DEVICE float reciprocal(float value) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

FARWARP_DEVICE float maximum(float a, float b) {
  float result;
  asm("max.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
FARWARP_DEVICE float exp2(float value) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}
FARWARP_DEVICE float log2(float value) {
  float result;
  asm("lg2.approx.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

}  // namespace farwarp::FARWARP_TARGET
