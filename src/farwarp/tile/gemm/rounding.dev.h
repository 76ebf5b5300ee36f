// What every epilogue does to a sum.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

template <class T>
FARWARP_DEVICE std::uint32_t round_pair(float first, float second) {
  return static_cast<std::uint32_t>(round_to<T>(second).bits) << 16 | round_to<T>(first).bits;
}

/// bias[index] as fp32, 0 without a bias or outside of it.
template <class T>
FARWARP_DEVICE float bias_at(Global<const T> bias, int index, int size) {
  return bias && index < size ? to_float(load(bias + index)) : 0.0f;
}

}  // namespace farwarp::FARWARP_TARGET::tile
