// The arguments of the kernel that flushes the L2.
#pragma once

#include <cstdint>

#include "farwarp/base/pointers.h"

namespace farwarp::harness {

struct FlushArgs {
  Vec16* memory;  ///< zeros
  std::int64_t count;
};

inline constexpr int kFlushThreads = 1024;

}  // namespace farwarp::harness
