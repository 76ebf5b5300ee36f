// What host and device share of the baseline's kernels.
#pragma once

#include <cstdint>

#include "farwarp/base/pointers.h"

namespace farwarp::moe {

inline constexpr int kBaselineThreads = 256;

/// Arguments of pack and unpack. A token's entry j has row packed_rows[token * k + j]; -1: the entry is skipped and has
/// no row.
struct BaselineTokenArgs {
  std::int32_t tokens;
  std::int32_t k;
  std::int32_t vectors;                    ///< of 16 bytes in a row
  Global<const std::int32_t> packed_rows;  ///< [tokens, k]
  Global<const float> weights;             ///< [tokens, k]; unpack only
  Global<const Vec16> x;                   ///< [tokens, vectors]; pack only
  Global<Vec16> out;                       ///< [tokens, vectors]; unpack only
  Global<Vec16> rows;
};

/// Arguments of the expert kernels, which multiply rows in place.
struct BaselineExpertArgs {
  Global<Vec16> rows;
  std::int64_t vectors;  ///< of all rows
  float scale;
};

}  // namespace farwarp::moe
