// Numbers as activations have them, and the functions of them that models share.
#pragma once

#include <bit>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// Element `i` of a four, which is bf16.
FARWARP_DEVICE float number_of(std::uint64_t four, int i) {
  return to_float(Bf16{static_cast<std::uint16_t>(four >> (16 * i))});
}
FARWARP_DEVICE std::uint64_t pack_four(float a, float b, float c, float d) {
  return round_pair<Bf16>(a, b) | static_cast<std::uint64_t>(round_pair<Bf16>(c, d)) << 32;
}

/// Two fp32, in the place of a four.
struct Two {
  float first, second;
};
FARWARP_DEVICE std::uint64_t pack_two(float first, float second) {
  return std::bit_cast<std::uint32_t>(first) | static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(second)) << 32;
}
FARWARP_DEVICE Two unpack_two(std::uint64_t bits) {
  return {std::bit_cast<float>(static_cast<std::uint32_t>(bits)),
          std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32))};
}

/// The inverse root of the mean of `rows` squares, as RMSNorm takes it.
FARWARP_DEVICE float inverse_root(float squares, int rows, float epsilon) {
  const float mean = divide(squares, static_cast<float>(rows));
  return exp2(multiply(-0.5f, log2(add(mean, epsilon))));
}

}  // namespace farwarp::FARWARP_TARGET::fleet
