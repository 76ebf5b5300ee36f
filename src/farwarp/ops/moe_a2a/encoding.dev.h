// How the numbers of a row cross the link in dispatch: as they are, or as e4m3 with one fp32 scale for each 128 of them
// (arXiv:2412.19437, section 3.3.2).
#pragma once

#include <bit>

#include "farwarp/ops/moe_a2a/memory.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

inline constexpr int kStride = Target::kWarpSize;  ///< units between a lane's

inline constexpr int kGroupUnits = kScaleGroup / kPer<Unit>;  ///< units with one scale

// Of a unit of 8 or of 16 bytes.

template <class T>
FARWARP_DEVICE T element(std::uint64_t unit, int i) {
  return T{static_cast<std::uint16_t>(unit >> (16 * i))};
}
template <class T>
FARWARP_DEVICE T element(Vec16 unit, int i) {
  return element<T>(i < 4 ? unit.lo : unit.hi, i & 3);
}

FARWARP_DEVICE void put_bits(std::uint64_t& unit, int i, std::uint16_t bits) {
  unit |= static_cast<std::uint64_t>(bits) << (16 * i);
}
FARWARP_DEVICE void put_bits(Vec16& unit, int i, std::uint16_t bits) {
  put_bits(i < 4 ? unit.lo : unit.hi, i & 3, bits);
}

template <class T, class U>
FARWARP_DEVICE U rounded(const float (&values)[kPer<U>]) {
  U unit{};
#pragma unroll
  for (int i = 0; i < kPer<U>; ++i) put_bits(unit, i, round_to<T>(values[i]).bits);
  return unit;
}

template <class T, class U>
FARWARP_DEVICE void values_of(const U& unit, float (&values)[kPer<U>]) {
#pragma unroll
  for (int i = 0; i < kPer<U>; ++i) values[i] = to_float(element<T>(unit, i));
}

// ---- e4m3 --------------------------------------------------------------------------------------------------------------

/// A unit as e4m3, and the scale of its group.
struct Fp8Unit {
  std::uint64_t numbers;
  float scale;
};

template <class T>
FARWARP_DEVICE void values_of(const Fp8Unit& unit, float (&values)[kPer<Unit>]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float four[4];
    from_fp8(static_cast<std::uint32_t>(unit.numbers >> (32 * half)), four);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[4 * half + i] = multiply(four[i], unit.scale);
  }
}

/// [warp] Quantises a bf16 unit of each lane; the lanes of a group, neighbours, begin at a multiple of their number. The scale
/// is the group's largest magnitude over the largest e4m3 number; a group with an infinity decodes to NaN.
FARWARP_DEVICE Fp8Unit quantised(const Unit& unit) {
  constexpr float kLargest = largest_fp8(Target::kFp8);
  float values[kPer<Unit>];
  values_of<Bf16>(unit, values);
  float largest = 0x1p-100f;  // so that a scale's reciprocal is a number
#pragma unroll
  for (int i = 0; i < kPer<Unit>; ++i) {
    const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int step = kGroupUnits / 2; step > 0; step /= 2) {
    const float other = shuffle_xor(largest, step);
    largest = other > largest ? other : largest;
  }
  const float inverse = divide(kLargest, largest);
  std::uint32_t halves[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) four[i] = multiply(values[4 * half + i], inverse);
    halves[half] = to_fp8(four);
  }
  return {static_cast<std::uint64_t>(halves[1]) << 32 | halves[0], multiply(largest, 1.0f / kLargest)};
}

// ---- the two encodings, as the wires take them ---------------------------------------------------------------------------

struct AsTheyAre {
  static constexpr bool kFp8 = false;
  using Dispatched = Unit;  ///< a unit of a dispatched row, in registers

  /// [thread] Unit `u` of output row `place`.
  FARWARP_DEVICE static void deliver(const Args& args, std::int64_t place, int u, const Unit& unit) {
    const int units = args.hidden / kPer<Unit>;
    store<Cache::streaming>(Global<Unit>(static_cast<Unit*>(args.recv_x)) + (place * units + u), unit);
  }
};

struct AsFp8 {
  static constexpr bool kFp8 = true;
  using Dispatched = Fp8Unit;

  FARWARP_DEVICE static void deliver(const Args& args, std::int64_t place, int u, const Fp8Unit& unit) {
    const int units = args.hidden / kPer<Unit>, groups = (units + kGroupUnits - 1) / kGroupUnits;
    const Global<std::uint64_t> out(static_cast<std::uint64_t*>(args.recv_x));
    store<Cache::streaming>(out + (place * units + u), unit.numbers);
    if (u % kGroupUnits == 0) store(Global<float>(args.recv_scales) + (place * groups + u / kGroupUnits), unit.scale);
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
