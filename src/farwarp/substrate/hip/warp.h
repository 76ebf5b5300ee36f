#pragma once

#include "farwarp/substrate/hip/ids.h"
#include "farwarp/substrate/hip/memory.h"

namespace farwarp::FARWARP_TARGET {

// ds_bpermute: each lane reads the register of another lane, given by 4 * its number. It uses the LDS unit but no LDS
// memory.
template <class T>
FARWARP_DEVICE T shuffle(T value, int source_lane) {
  static_assert(Word<T>);
  const int offset = source_lane * 4;
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(__builtin_amdgcn_ds_bpermute(offset, std::bit_cast<int>(value)));
  } else {
    struct Halves {
      int lo, hi;
    };
    const auto halves = std::bit_cast<Halves>(value);
    return std::bit_cast<T>(
        Halves{__builtin_amdgcn_ds_bpermute(offset, halves.lo), __builtin_amdgcn_ds_bpermute(offset, halves.hi)});
  }
}

template <class T>
FARWARP_DEVICE T shuffle_xor(T value, int lane_mask) {
  return shuffle(value, lane_index() ^ lane_mask);
}

FARWARP_DEVICE int uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }
FARWARP_DEVICE std::uint64_t ballot(bool predicate) { return __builtin_amdgcn_ballot_w64(predicate); }

// One iteration for each distinct value: the lanes whose value equals that of the first active lane return together.
FARWARP_DEVICE std::uint64_t match_any(std::uint32_t value) {
  for (;;) {
    const std::uint32_t first = __builtin_amdgcn_readfirstlane(value);
    if (first == value) return __builtin_amdgcn_ballot_w64(true);
  }
}

FARWARP_DEVICE int count_bits(std::uint64_t mask) { return __builtin_popcountll(mask); }
FARWARP_DEVICE int lowest_bit(std::uint64_t mask) { return __builtin_ctzll(mask); }
FARWARP_DEVICE int highest_bit(std::uint64_t mask) { return 63 - __builtin_clzll(mask); }
FARWARP_DEVICE std::uint64_t lanes_below() { return (std::uint64_t{1} << lane_index()) - 1; }

}  // namespace farwarp::FARWARP_TARGET
