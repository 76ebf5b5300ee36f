// The bias that every epilogue adds.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

/// Returns bias[index] as fp32, or 0 if `bias` is null or `index` is not below `size`.
template <class T>
FARWARP_DEVICE float bias_at(Global<const T> bias, int index, int size) {
  return bias && index < size ? to_float(load(bias + index)) : 0.0f;
}

}  // namespace farwarp::FARWARP_TARGET::tile
