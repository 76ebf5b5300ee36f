// The tensors of a Qwen3, and random ones from a seed, which host and device compute alike.
#pragma once

#include <cstdint>

#include "farwarp/base/half.h"

namespace farwarp::qwen3 {

/// Of a layer; those of the whole model follow those of all layers.
enum class Tensor : std::int32_t {
  kQ,
  kK,
  kV,
  kOut,
  kGate,
  kUp,
  kDown,
  kInputNorm,
  kPostNorm,
  kQNorm,
  kKNorm,
  kTensors
};
enum class GlobalTensor : std::int32_t { kEmbedding, kFinalNorm, kHead };

constexpr std::int32_t tensor_number(Tensor tensor, int layer) {
  return layer * static_cast<int>(Tensor::kTensors) + static_cast<int>(tensor);
}
constexpr std::int32_t tensor_number(GlobalTensor tensor, int layers) {
  return layers * static_cast<int>(Tensor::kTensors) + static_cast<int>(tensor);
}

/// A random number of a tensor: offset + scale * a uniform number of [-1, 1). Packing rounds it to bf16.
struct RandomTensor {
  std::uint64_t seed;
  std::int32_t tensor;  ///< tensor_number()
  float scale, offset;

  constexpr float at(std::int64_t element) const {
    std::uint64_t bits = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(tensor) * 0xd1b54a32d192ed03u +
                         static_cast<std::uint64_t>(element);
    // SplitMix64's finaliser.
    bits += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    const auto integer = static_cast<std::int32_t>(bits >> 40) - (1 << 23);
    const float product = scale * (static_cast<float>(integer) * 0x1p-23f);
    return product + offset;
  }
};

}  // namespace farwarp::qwen3
