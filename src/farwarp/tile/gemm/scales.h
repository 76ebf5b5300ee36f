// The scales of e4m3 operands of a product, as kernels take them.
#pragma once

#include <cstdint>

namespace farwarp::tile {

inline constexpr int kScaledDepth = 128;  ///< of K, and rows of w, that share a scale

/// Where the scales of an operand lie: that of step `step` of 128 of K at scales[row * row_stride + step * step_stride].
struct ScaleStrides {
  const float* scales;
  std::int64_t row_stride;   ///< from one row of x, or 128 rows of w, to the next; 0: all have the same
  std::int64_t step_stride;  ///< from 128 of K to the next; 0: all have the same
};

}  // namespace farwarp::tile
