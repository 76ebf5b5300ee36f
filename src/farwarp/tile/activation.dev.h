// Activations of the gated products of models.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

/// [thread] x / (1 + e^(-factor * x)); SiLU with the factor 1.
FARWARP_DEVICE float silu(float x, float factor = 1) {
  constexpr float kLog2OfE = 1.44269504f;
  return multiply(x, reciprocal(add(1.0f, exp2(multiply(-kLog2OfE * factor, x)))));
}

FARWARP_DEVICE float swiglu(float gate, float up) { return multiply(silu(gate), up); }
/// [thread] gpt-oss's (arXiv 2508.10925; its reference implementation has the constants).
FARWARP_DEVICE float clamped_swiglu(float gate, float up) {
  constexpr float kFactor = 1.702f, kLimit = 7;
  const float g = gate > kLimit ? kLimit : gate;  // NaN stays NaN
  const float u = up > kLimit ? kLimit : up < -kLimit ? -kLimit : up;
  return multiply(silu(g, kFactor), add(u, 1.0f));
}

}  // namespace farwarp::FARWARP_TARGET::tile
