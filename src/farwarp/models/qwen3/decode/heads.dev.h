// What is done to a head of q or k before attention: RMSNorm and the rotation.
#pragma once

#include "farwarp/models/qwen3/decode/context.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// What a lane needs to normalise and rotate rows 4 * lane on of a head: loaded before the head has arrived.
struct HeadParameters {
  std::uint64_t weights = 0;  ///< of the norm
  float cosines[4] = {}, sines[4] = {};

  FARWARP_DEVICE static HeadParameters load_for(const Args& args, std::int64_t norm, int position) {
    HeadParameters parameters;
    if (lane_index() * 4 >= args.head_dim) return parameters;
    parameters.weights = load(
        Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(args.launch.weights + norm)) + lane_index());
    const Global<const Vec16> rotations =
        Global<const Vec16>(reinterpret_cast<const Vec16*>(args.rotations)) +
        (std::int64_t{position} * args.head_dim / 4 + 2 * (lane_index() % (args.head_dim / 8)));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Vec16 two = load(rotations + i / 2);
      const std::uint64_t one = i % 2 == 0 ? two.lo : two.hi;
      parameters.cosines[i] = std::bit_cast<float>(static_cast<std::uint32_t>(one));
      parameters.sines[i] = std::bit_cast<float>(static_cast<std::uint32_t>(one >> 32));
    }
    return parameters;
  }
};

/// [warp] RMSNorm over a head, then the rotation (RoPE, halves as in GPT-NeoX). The lane has rows 4 * lane on of the
/// head.
FARWARP_DEVICE std::uint64_t normalise_and_rotate(const Args& args, std::uint64_t four,
                                                  const HeadParameters& parameters) {
  const bool exists = lane_index() * 4 < args.head_dim;
  float numbers[4], squares = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    numbers[i] = exists ? number_of(four, i) : 0.0f;
    squares = fused_multiply_add(numbers[i], numbers[i], squares);
  }
#pragma unroll
  for (int lanes = 1; lanes < Target::kWarpSize; lanes *= 2) squares = add(squares, shuffle_xor(squares, lanes));
  const float inverse = inverse_root(squares, args.head_dim, args.launch.epsilon);
  const int half_lanes = args.head_dim / 8;
  const bool upper = lane_index() >= half_lanes;
  float rotated[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float number = multiply(multiply(numbers[i], inverse), number_of(parameters.weights, i));
    const float other = shuffle_xor(number, half_lanes);
    const float sine = parameters.sines[i];
    rotated[i] = fused_multiply_add(other, upper ? sine : -sine, multiply(number, parameters.cosines[i]));
  }
  return exists ? pack_four(rotated[0], rotated[1], rotated[2], rotated[3]) : 0;
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
