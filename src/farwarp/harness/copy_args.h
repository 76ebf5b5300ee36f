// Argument block of harness_copy.
#pragma once

#include <cstdint>

#include "farwarp/base/pointers.h"
namespace farwarp::harness {

inline constexpr int kCopyThreads = 512;

struct CopyArgs {
  const Vec16* from = nullptr;
  Vec16* to = nullptr;
  std::int64_t count = 0;
};

}  // namespace farwarp::harness
