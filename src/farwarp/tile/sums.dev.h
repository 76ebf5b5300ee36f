// Sums of vectors of several ranks, in the order of the ranks: the same bits wherever they are added.
#pragma once

#include <bit>
#include <type_traits>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

/// How many T a vector has.
template <class T>
inline constexpr int kVectorElements = static_cast<int>(sizeof(Vec16) / sizeof(T));

/// [thread] Element i of a vector of T, which is Bf16, Half or float.
template <class T>
FARWARP_DEVICE T element(Vec16 vector, int i) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>((i < 2 ? vector.lo : vector.hi) >> (32 * (i & 1))));
  } else {
    return T{static_cast<std::uint16_t>((i < 4 ? vector.lo : vector.hi) >> (16 * (i & 3)))};
  }
}

FARWARP_DEVICE float as_float(float value) { return value; }
template <class T>
FARWARP_DEVICE float as_float(T value) {
  return to_float(value);
}

/// [thread] A vector of T, which is Bf16 or Half.
template <class T>
FARWARP_DEVICE Vec16 rounded(const float (&values)[kVectorElements<T>]) {
  std::uint64_t pairs[4];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) pairs[pair] = round_pair<T>(values[2 * pair], values[2 * pair + 1]);
  return {pairs[1] << 32 | pairs[0], pairs[3] << 32 | pairs[2]};
}

/// [thread] Adds up a vector of T from each of `ranks` sources (at most `most`) in fp32, in the order of the sources,
/// and rounds once.
template <class T, int most>
FARWARP_DEVICE Vec16 sum_in_order(const Vec16 (&parts)[most], int ranks) {
  float sums[kVectorElements<T>] = {};
#pragma unroll
  for (int source = 0; source < most; ++source) {
    if (source >= ranks) continue;
#pragma unroll
    for (int i = 0; i < kVectorElements<T>; ++i) {
      const float term = as_float(element<T>(parts[source], i));
      sums[i] = source == 0 ? term : add(sums[i], term);
    }
  }
  if constexpr (std::is_same_v<T, float>) {
    const auto pair = [&](int i) {
      return std::uint64_t{std::bit_cast<std::uint32_t>(sums[i + 1])} << 32 | std::bit_cast<std::uint32_t>(sums[i]);
    };
    return {pair(0), pair(2)};
  } else {
    return rounded<T>(sums);
  }
}

}  // namespace farwarp::FARWARP_TARGET::tile
