// The numbers in a lane's vectors, and how those of a row cross the link in dispatch and are delivered: unchanged, or
// as e4m3 with a scale for each 128 of them (arXiv:2412.19437, section 3.3.2), fp32 or an exponent.
#pragma once

#include <bit>

#include "farwarp/ops/moe_a2a/memory.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

/// A lane's vectors of a row are u, u + kStride, ..., with u the first vector of a segment, or of a round within it,
/// plus the lane.
inline constexpr int kStride = Target::kWarpSize;

inline constexpr int kGroupVectors = kScaleGroup / kElementsPer<Vector>;  ///< vectors with one scale

/// Element `i` of a vector of four or eight 16-bit elements.
template <class T>
FARWARP_DEVICE T element(std::uint64_t vector, int i) {
  return T{static_cast<std::uint16_t>(vector >> (16 * i))};
}
template <class T>
FARWARP_DEVICE T element(Vec16 vector, int i) {
  return element<T>(i < 4 ? vector.lo : vector.hi, i & 3);
}

FARWARP_DEVICE void put_bits(std::uint64_t& vector, int i, std::uint16_t bits) {
  vector |= static_cast<std::uint64_t>(bits) << (16 * i);
}
FARWARP_DEVICE void put_bits(Vec16& vector, int i, std::uint16_t bits) {
  put_bits(i < 4 ? vector.lo : vector.hi, i & 3, bits);
}

template <class T, class U>
FARWARP_DEVICE U rounded(const float (&values)[kElementsPer<U>]) {
  U vector{};
#pragma unroll
  for (int i = 0; i < kElementsPer<U>; ++i) put_bits(vector, i, round_to<T>(values[i]).bits);
  return vector;
}

template <class T, class U>
FARWARP_DEVICE void values_of(const U& vector, float (&values)[kElementsPer<U>]) {
#pragma unroll
  for (int i = 0; i < kElementsPer<U>; ++i) values[i] = to_float(element<T>(vector, i));
}

// ---- e4m3 -----------------------------------------------------------------------------------------------------------

/// A vector as e4m3, and the scale of its group.
struct Fp8Vector {
  std::uint64_t numbers;
  float scale;
};

template <class T>
FARWARP_DEVICE void values_of(const Fp8Vector& vector, float (&values)[kElementsPer<Vector>]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float four[4];
    from_fp8(static_cast<std::uint32_t>(vector.numbers >> (32 * half)), four);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[4 * half + i] = multiply(four[i], vector.scale);
  }
}

/// [warp] Quantises a bf16 vector of each lane. A scale group is kGroupVectors consecutive lanes, the first of them a
/// multiple of kGroupVectors. The scale is the group's largest magnitude divided by the largest e4m3 number, with
/// Fp8Args::exponents rounded up to a power of two. A group with an infinity decodes to NaN.
FARWARP_DEVICE Fp8Vector quantised(const Args& args, const Vector& vector) {
  constexpr float kLargest = largest_fp8(Target::kFp8);
  float values[kElementsPer<Vector>];
  values_of<Bf16>(vector, values);
  float largest = 0x1p-100f;  // a lower bound that keeps the reciprocal finite
#pragma unroll
  for (int i = 0; i < kElementsPer<Vector>; ++i) {
    const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int step = kGroupVectors / 2; step > 0; step /= 2) {
    const float other = shuffle_xor(largest, step);
    largest = other > largest ? other : largest;
  }
  float inverse = divide(kLargest, largest), scale = multiply(largest, 1.0f / kLargest);
  if (args.fp8.exponents != 0) {  // `scale` is positive and normal, or infinite
    const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(scale) + 0x7fffff) >> 23;
    scale = std::bit_cast<float>(exponent << 23);
    inverse = exponent < 254 ? std::bit_cast<float>((254 - exponent) << 23) : 0.0f;
  }
  std::uint32_t halves[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) four[i] = multiply(values[4 * half + i], inverse);
    halves[half] = to_fp8(four);
  }
  return {static_cast<std::uint64_t>(halves[1]) << 32 | halves[0], scale};
}

// ---- the encodings, parameters of the wires -------------------------------------------------------------------------

struct Unquantised {
  static constexpr bool kFp8 = false;
  using Dispatched = Vector;  ///< a vector of a dispatched row, in registers

  /// [thread] Stores vector `u` of output row `output_row`.
  FARWARP_DEVICE static void deliver(const Args& args, std::int64_t output_row, int u, const Vector& vector) {
    const int vectors = args.hidden / kElementsPer<Vector>;
    store<Cache::streaming>(Global<Vector>(static_cast<Vector*>(args.dispatch.recv_x)) + (output_row * vectors + u),
                            vector);
  }
};

struct AsFp8 {
  static constexpr bool kFp8 = true;
  using Dispatched = Fp8Vector;

  FARWARP_DEVICE static void deliver(const Args& args, std::int64_t output_row, int u, const Fp8Vector& vector) {
    deliver_numbers(args, output_row, u, vector);
    if (u % kGroupVectors == 0)
      store(Global<float>(args.fp8.scales) + (output_row * groups(args) + u / kGroupVectors), vector.scale);
  }

 protected:
  FARWARP_DEVICE static int groups(const Args& args) {
    return (args.hidden / kElementsPer<Vector> + kGroupVectors - 1) / kGroupVectors;
  }
  FARWARP_DEVICE static void deliver_numbers(const Args& args, std::int64_t output_row, int u,
                                             const Fp8Vector& vector) {
    const Global<std::uint64_t> out(static_cast<std::uint64_t*>(args.dispatch.recv_x));
    store<Cache::streaming>(out + (output_row * (args.hidden / kElementsPer<Vector>)+u), vector.numbers);
  }
};

/// AsFp8 with MoeScales::kColumns, or kExponentColumns if Fp8Args::exponents is 2.
struct AsFp8Columns : AsFp8 {
  FARWARP_DEVICE static void deliver(const Args& args, std::int64_t output_row, int u, const Fp8Vector& vector) {
    deliver_numbers(args, output_row, u, vector);
    if (u % kGroupVectors != 0) return;
    const std::int32_t room = args.fp8.by_room.value,
                       expert = args.fp8.by_room.quotient(static_cast<std::int32_t>(output_row));
    const std::int32_t group = u / kGroupVectors;
    const std::int64_t row = output_row - std::int64_t{expert} * room;
    if (args.fp8.exponents == 2) {  // four groups of a row are a word
      const std::int64_t word = (std::int64_t{expert} * (groups(args) / 4) + group / 4) * room + row;
      store(Global<std::uint8_t>(reinterpret_cast<std::uint8_t*>(args.fp8.scales)) + (4 * word + group % 4),
            static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(vector.scale) >> 23));
      return;
    }
    const std::int64_t column = std::int64_t{expert} * groups(args) + group;
    store(Global<float>(args.fp8.scales) + (column * room + row), vector.scale);
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
