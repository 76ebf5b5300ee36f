// Published measurements that `farwarp cache attention --sweep` is compared with.
#pragma once

#include <span>
#include <string_view>

#include "farwarp/ops/attention/mapping.h"

namespace farwarp::cli {

enum class CacheMetric : std::uint8_t {
  kL2HitRate,      ///< percent
  kRelativeSpeed,  ///< percent of the speed of head_first_swizzled
};

struct PublishedFigure {
  attention::Mapping mapping;
  CacheMetric metric;
  double low, high;  ///< the range that is stated; equal for one figure
};

/// All: batch 1, not causal, 2 bytes to an element, tiles of 64 rows of K.
struct PublishedCase {
  std::string_view machine;
  int heads, kv_heads, seq, head_dim, block_m;
  std::string_view source;
  std::span<const PublishedFigure> figures;  ///< empty: the case was measured, its figures are not stated
};

std::span<const PublishedCase> published_cases();

}  // namespace farwarp::cli
