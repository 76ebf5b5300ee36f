// Activations of the gated products of models.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

/// [thread] x / (1 + e^(-factor * x)); SiLU with the factor 1.
FARWARP_DEVICE float silu(float x, float factor = 1) {
  constexpr float kLog2OfE = 1.44269504f;
  return divide(x, add(1.0f, exp2(multiply(-kLog2OfE * factor, x))));
}

}  // namespace farwarp::FARWARP_TARGET::tile
