#pragma once

#include <bit>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

namespace gcn {
typedef float Float2 __attribute__((ext_vector_type(2)));
typedef _Float16 Half2 __attribute__((ext_vector_type(2)));
typedef __bf16 Bf16x2 __attribute__((ext_vector_type(2)));
}  // namespace gcn

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

// bf16 on gfx942, in packed arithmetic: 65536 x is on the grid of bf16 numbers near x. So -65535 x, which is 65536 x -
// x to the other sign, is rounded to that grid, and a tie to even, because 65536 x is even where x lies half way
// between two bf16 numbers. What is left of 65536 x is x rounded to bf16, exactly. Compared on a CPU with bf16_from()
// for all numbers that are allowed.
template <class T>
FARWARP_DEVICE std::uint64_t round_bounded(FloatPair first, FloatPair second) {
  const gcn::Float2 pairs[2] = {{first.first, first.second}, {second.first, second.second}};
  std::uint32_t words[2];
  if constexpr (std::is_same_v<T, Half>) {
#pragma unroll
    for (int i = 0; i < 2; ++i) words[i] = std::bit_cast<std::uint32_t>(__builtin_convertvector(pairs[i], gcn::Half2));
  } else {
#if defined(__gfx950__)
#pragma unroll
    for (int i = 0; i < 2; ++i) words[i] = std::bit_cast<std::uint32_t>(__builtin_convertvector(pairs[i], gcn::Bf16x2));
#else
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const gcn::Float2 negative = pairs[i] * -65535.0f;
      const gcn::Float2 rounded = __builtin_elementwise_fma(pairs[i], gcn::Float2{65536.0f, 65536.0f}, negative);
      words[i] = upper_halves(std::bit_cast<std::uint32_t>(rounded[0]), std::bit_cast<std::uint32_t>(rounded[1]));
    }
#endif
  }
  return std::uint64_t{words[1]} << 32 | words[0];
}

/// A mode bit decides whether the conversions saturate, so this function clamps to the largest number first. A NaN
/// stays a NaN.
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
  const auto lower = __builtin_amdgcn_cvt_pk_f32_fp8(word, false), upper = __builtin_amdgcn_cvt_pk_f32_fp8(word, true);
  values[0] = lower[0], values[1] = lower[1], values[2] = upper[0], values[3] = upper[1];
}

// Nothing is rounded: a number of 8 bits is one of T, too.
template <class T>
FARWARP_DEVICE void widen_fp8(std::uint32_t bytes, std::uint32_t& even, std::uint32_t& odd) {
  float values[4];
  from_fp8(bytes, values);
  const auto exact_pair = [](float first, float second) {
    if constexpr (std::is_same_v<T, Half>)
      return std::bit_cast<std::uint32_t>(__builtin_amdgcn_cvt_pkrtz(first, second));
    else
      return upper_halves(std::bit_cast<std::uint32_t>(first), std::bit_cast<std::uint32_t>(second));
  };
  even = exact_pair(values[0], values[2]);
  odd = exact_pair(values[1], values[3]);
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
FARWARP_DEVICE float reciprocal(float value) { return __builtin_amdgcn_rcpf(value); }

FARWARP_DEVICE std::uint32_t lower_halves(std::uint32_t first, std::uint32_t second) {
  return __builtin_amdgcn_perm(second, first, 0x05040100);
}
FARWARP_DEVICE std::uint32_t upper_halves(std::uint32_t first, std::uint32_t second) {
  return __builtin_amdgcn_perm(second, first, 0x07060302);
}

// v_pk_fma_f32, v_pk_mul_f32, v_pk_add_f32.
FARWARP_DEVICE FloatPair fused_multiply_add(FloatPair a, FloatPair b, FloatPair c) {
  return std::bit_cast<FloatPair>(__builtin_elementwise_fma(
      std::bit_cast<gcn::Float2>(a), std::bit_cast<gcn::Float2>(b), std::bit_cast<gcn::Float2>(c)));
}
FARWARP_DEVICE FloatPair multiply(FloatPair a, FloatPair b) {
#pragma clang fp contract(off)
  return std::bit_cast<FloatPair>(std::bit_cast<gcn::Float2>(a) * std::bit_cast<gcn::Float2>(b));
}
FARWARP_DEVICE FloatPair add(FloatPair a, FloatPair b) {
#pragma clang fp contract(off)
  return std::bit_cast<FloatPair>(std::bit_cast<gcn::Float2>(a) + std::bit_cast<gcn::Float2>(b));
}

FARWARP_DEVICE float maximum(float a, float b) { return __builtin_fmaxf(a, b); }
// v_exp_f32 and v_log_f32 take and give no denormals.
FARWARP_DEVICE float exp2(float value) { return __builtin_amdgcn_exp2f(value); }
FARWARP_DEVICE float log2(float value) { return __builtin_amdgcn_logf(value); }

}  // namespace farwarp::FARWARP_TARGET
