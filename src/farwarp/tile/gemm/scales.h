// The scales of e4m3 operands of a product.
#pragma once

#include <cstdint>

namespace farwarp {

/// Whether x and w are e4m3, and what shares a scale. An element of x times its scale is the number meant; so of w.
enum class GemmScaling : std::int8_t {
  kNone,    ///< x and w have the dtype of y
  kBlocks,  ///< e4m3; x_scale [m, ceil(k / 128)], w_scale [ceil(n / 128), ceil(k / 128)], as DeepSeek-V3's checkpoints
  kRows,    ///< e4m3; x_scale [m], w_scale [n]
  kTensor,  ///< e4m3; x_scale [1], w_scale [1]
};
constexpr const char* name_of(GemmScaling scaling) {
  constexpr const char* kNames[] = {"none", "blocks", "rows", "tensor"};
  const auto number = static_cast<unsigned>(scaling);
  return number < 4 ? kNames[number] : "?";
}

}  // namespace farwarp

namespace farwarp::tile {

inline constexpr int kScaledDepth = 128;  ///< of K, and rows of w, that share a scale

/// Of `size` elements, how many blocks of kScaledDepth share a scale.
constexpr std::int64_t scaled_blocks(std::int64_t size) { return (size + kScaledDepth - 1) / kScaledDepth; }

/// Where the scales of an operand lie: that of step `step`, of 128 of K, at
/// scales[row * row_stride + step * step_stride].
struct ScaleStrides {
  const float* scales;
  std::int64_t row_stride;   ///< from one row of x, or 128 rows of w, to the next; 0: all have the same
  std::int64_t step_stride;  ///< from 128 of K to the next; 0: all have the same
};

}  // namespace farwarp::tile
