// The arguments of the kernel that brings a tensor into the layout that tasks read.
#pragma once

#include <cstdint>

#include "farwarp/fleet/layout.h"
#include "farwarp/models/qwen3/weights/tensors.h"

namespace farwarp::qwen3 {

inline constexpr int kPackThreads = 256;

struct PackArgs {
  const std::uint16_t* source;  ///< bf16 [rows][columns]; null: `random`
  RandomTensor random;
  std::int32_t rows, columns;  ///< columns is a multiple of 4
  std::int64_t first_element;  ///< of the tensor's that these are, for `random`
  std::int32_t pitch;          ///< of the tensor's rows, in elements
  std::byte* to;
  fleet::MatrixShape shape;  ///< of the matrix that the tensor is a part of; no tiles: it is stored row by row
  std::int32_t workers;
  std::int32_t first_row;  ///< of these rows in that matrix, or, if paired, in their tensor
  /// 1: rows 8i to 8i + 7 become the first half of tile i of the matrix, then those of another tensor; 2: the second
  /// half
  std::int32_t paired;
};

}  // namespace farwarp::qwen3
