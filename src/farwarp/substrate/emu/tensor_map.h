// The contents of an emulated TensorMap: its description.
#pragma once

#include <bit>
#include <cstring>

#include "farwarp/base/tensor_map.h"

namespace farwarp::emu {

struct EncodedTensorMap {
  static constexpr std::uint64_t kMagic = 0x70616d20726f736eull;
  std::uint64_t magic = kMagic;
  TensorMapDesc desc;
};
static_assert(sizeof(EncodedTensorMap) <= sizeof(TensorMap));

inline EncodedTensorMap decode(const TensorMap& map) {
  EncodedTensorMap encoded;
  std::memcpy(static_cast<void*>(&encoded), map.words, sizeof(encoded));
  return encoded;
}

}  // namespace farwarp::emu
