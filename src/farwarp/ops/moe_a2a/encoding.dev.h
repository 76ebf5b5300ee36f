// How the numbers of a row cross the link in dispatch: as they are, or as e4m3 with one fp32 scale for each 128 of them
// (arXiv:2412.19437, section 3.3.2). Rows are worked on in units, what one lane reads and writes at once: the data of a packet,
// 8 bytes, or a plain 16. A unit stands for as many numbers in either encoding.
#pragma once

#include <bit>
#include <type_traits>

#include "farwarp/ops/moe_a2a/regions.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using farwarp::moe::kScaleGroup;

inline constexpr int kStride = Target::kWarpSize;  ///< units between a lane's

template <class Unit>
inline constexpr int kPer = static_cast<int>(sizeof(Unit) / 2);  ///< 16-bit elements of a unit

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

template <class T, class Unit>
FARWARP_DEVICE Unit rounded(const float (&values)[kPer<Unit>]) {
  Unit unit{};
#pragma unroll
  for (int i = 0; i < kPer<Unit>; ++i) put_bits(unit, i, round_to<T>(values[i]).bits);
  return unit;
}

template <class T, class Unit>
FARWARP_DEVICE void values_of(const Unit& unit, float (&values)[kPer<Unit>]) {
#pragma unroll
  for (int i = 0; i < kPer<Unit>; ++i) values[i] = to_float(element<T>(unit, i));
}

// ---- e4m3 --------------------------------------------------------------------------------------------------------------

/// `count` numbers of one group.
template <int count>
struct Fp8Piece {
  std::uint32_t bytes[count / 4];
  float scale;
};

template <class T, int count>
FARWARP_DEVICE void values_of(const Fp8Piece<count>& piece, float (&values)[count]) {
#pragma unroll
  for (int word = 0; word < count / 4; ++word) {
    float four[4];
    from_fp8(piece.bytes[word], four);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[4 * word + i] = multiply(four[i], piece.scale);
  }
}

/// [warp] Quantises a bf16 unit of each lane; the lanes of a group, neighbours, begin at a multiple of their number. The scale
/// is the group's largest magnitude over the largest e4m3 number; a group with an infinity decodes to NaN.
template <class Unit>
FARWARP_DEVICE Fp8Piece<kPer<Unit>> quantised(const Unit& unit) {
  constexpr int kCount = kPer<Unit>;
  constexpr float kLargest = largest_fp8(Target::kFp8);
  float values[kCount];
  values_of<Bf16>(unit, values);
  float largest = 0x1p-100f;  // so that a scale's reciprocal is a number
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int step = kScaleGroup / kCount / 2; step > 0; step /= 2) {
    const float other = shuffle_xor(largest, step);
    largest = other > largest ? other : largest;
  }
  const float inverse = divide(kLargest, largest);
  Fp8Piece<kCount> piece;
  piece.scale = multiply(largest, 1.0f / kLargest);
#pragma unroll
  for (int word = 0; word < kCount / 4; ++word) {
    float four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) four[i] = multiply(values[4 * word + i], inverse);
    piece.bytes[word] = to_fp8(four);
  }
  return piece;
}

FARWARP_DEVICE std::uint32_t joined(const Fp8Piece<4>& piece) { return piece.bytes[0]; }
FARWARP_DEVICE std::uint64_t joined(const Fp8Piece<8>& piece) {
  return static_cast<std::uint64_t>(piece.bytes[1]) << 32 | piece.bytes[0];
}

// ---- the two encodings, as the wires take them ---------------------------------------------------------------------------

struct AsTheyAre {
  static constexpr bool kFp8 = false;
  template <class Unit>
  using Piece = Unit;  ///< a unit of a dispatched row, in registers

  /// [warp] The data of a packet, and back.
  FARWARP_DEVICE static std::uint64_t packed(std::uint64_t unit) { return unit; }
  FARWARP_DEVICE static std::uint64_t unpacked(std::uint64_t data) { return data; }

  /// [thread] Unit `u` of output row `place`.
  template <class Unit>
  FARWARP_DEVICE static void deliver(const Args& args, std::int64_t place, int u, const Unit& unit) {
    const int units = args.hidden / kPer<Unit>;
    store<Cache::streaming>(Global<Unit>(static_cast<Unit*>(args.recv_x)) + (place * units + u), unit);
  }
};

/// A packet has room for four numbers and their scale; in bulk mode a row's scales stand behind its numbers.
struct AsFp8 {
  static constexpr bool kFp8 = true;
  template <class Unit>
  using Piece = Fp8Piece<kPer<Unit>>;

  FARWARP_DEVICE static std::uint64_t packed(std::uint64_t unit) {
    const Fp8Piece<4> piece = quantised(unit);
    return static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(piece.scale)) << 32 | joined(piece);
  }
  FARWARP_DEVICE static Fp8Piece<4> unpacked(std::uint64_t data) {
    return {{static_cast<std::uint32_t>(data)}, std::bit_cast<float>(static_cast<std::uint32_t>(data >> 32))};
  }

  template <int count>
  FARWARP_DEVICE static void deliver(const Args& args, std::int64_t place, int u, const Fp8Piece<count>& piece) {
    using Word = decltype(joined(piece));
    constexpr int kUnits = kScaleGroup / count;  // of a group
    const int units = args.hidden / count, groups = (units + kUnits - 1) / kUnits;
    store<Cache::streaming>(Global<Word>(static_cast<Word*>(args.recv_x)) + (place * units + u), joined(piece));
    if (u % kUnits == 0) store(Global<float>(args.recv_scales) + (place * groups + u / kUnits), piece.scale);
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
