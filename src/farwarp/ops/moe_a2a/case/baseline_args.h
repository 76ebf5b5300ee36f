// What host and device share of the baseline's kernels.
#pragma once

#include <cstdint>

#include "farwarp/base/pointers.h"

namespace farwarp::moe {

inline constexpr int kBaselineThreads = 256;

/// Of pack and unpack. A token's entry j has row places[token * k + j]; masked entries have none, -1.
struct BaselineTokenArgs {
  std::int32_t tokens;
  std::int32_t k;
  std::int32_t vectors;               ///< of 16 bytes in a row
  Global<const std::int32_t> places;  ///< [tokens, k]
  Global<const float> weights;        ///< [tokens, k], of unpack
  Global<const Vec16> x;              ///< [tokens, vectors], of pack
  Global<Vec16> out;                  ///< [tokens, vectors], of unpack
  Global<Vec16> rows;
};

/// Of the experts: rows are multiplied in place.
struct BaselineExpertArgs {
  Global<Vec16> rows;
  std::int64_t vectors;  ///< of all rows
  float scale;
};

}  // namespace farwarp::moe
