#pragma once

#include <bit>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

template <class T>
FARWARP_DEVICE T shuffle(T value, int source_lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  const emu::WarpValues lanes = emu::warp_exchange(emu::WarpOp::shuffle, detail::bits_of(value));
  if (source_lane < 0 || source_lane >= Target::kWarpSize || !(lanes.present >> source_lane & 1)) {
    emu::fault_bad_lane(source_lane);
  }
  return detail::value_of<T>(lanes.values[source_lane]);
}

template <class T>
FARWARP_DEVICE T shuffle_xor(T value, int lane_mask) {
  return shuffle(value, lane_index() ^ lane_mask);
}

FARWARP_DEVICE int uniform(int value) { return shuffle(value, 0); }
FARWARP_DEVICE std::uint64_t ballot(bool predicate) {
  const emu::WarpValues lanes = emu::warp_exchange(emu::WarpOp::ballot, predicate);
  std::uint64_t mask = 0;
  for (std::uint64_t left = lanes.present; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    mask |= lanes.values[lane] << lane;
  }
  return mask;
}

FARWARP_DEVICE std::uint64_t match_any(std::uint32_t value) {
  const emu::WarpValues lanes = emu::warp_exchange(emu::WarpOp::match, value);
  std::uint64_t mask = 0;
  for (std::uint64_t left = lanes.present; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (lanes.values[lane] == value) mask |= std::uint64_t{1} << lane;
  }
  return mask;
}

FARWARP_DEVICE int count_bits(std::uint64_t mask) { return std::popcount(mask); }
FARWARP_DEVICE int lowest_bit(std::uint64_t mask) { return std::countr_zero(mask); }
FARWARP_DEVICE int highest_bit(std::uint64_t mask) { return 63 - std::countl_zero(mask); }
FARWARP_DEVICE std::uint64_t lanes_below() { return (std::uint64_t{1} << lane_index()) - 1; }

}  // namespace farwarp::FARWARP_TARGET
