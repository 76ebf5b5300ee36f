#pragma once

#include "farwarp/substrate/bits.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

namespace detail {
inline constexpr unsigned kAllLanes = 0xffffffffu;
}

// For 8-byte values the intrinsic is two instructions.
template <class T>
FARWARP_DEVICE T shuffle(T value, int source_lane) {
  static_assert(Word<T>);
  return std::bit_cast<T>(static_cast<BitsOf<T>>(__shfl_sync(detail::kAllLanes, bits_of(value), source_lane)));
}

template <class T>
FARWARP_DEVICE T shuffle_xor(T value, int lane_mask) {
  static_assert(Word<T>);
  return std::bit_cast<T>(static_cast<BitsOf<T>>(__shfl_xor_sync(detail::kAllLanes, bits_of(value), lane_mask)));
}

// ptxas takes the result of a shuffle from a constant lane to be the same on all lanes.
FARWARP_DEVICE int uniform(int value) { return __shfl_sync(detail::kAllLanes, value, 0); }
FARWARP_DEVICE std::uint64_t ballot(bool predicate) { return __ballot_sync(detail::kAllLanes, predicate); }
FARWARP_DEVICE std::uint64_t match_any(std::uint32_t value) { return __match_any_sync(detail::kAllLanes, value); }

FARWARP_DEVICE int count_bits(std::uint64_t mask) { return __popcll(mask); }
FARWARP_DEVICE int lowest_bit(std::uint64_t mask) { return __ffsll(static_cast<long long>(mask)) - 1; }
FARWARP_DEVICE int highest_bit(std::uint64_t mask) { return 63 - __clzll(static_cast<long long>(mask)); }
FARWARP_DEVICE std::uint64_t lanes_below() { return (std::uint64_t{1} << lane_index()) - 1; }

}  // namespace farwarp::FARWARP_TARGET
