// The arguments of the kernel that reads memory into the L2.
#pragma once

#include <cstdint>

#include "farwarp/base/pointers.h"

namespace farwarp::harness {

struct FlushArgs {
  const Vec16* memory;
  std::int64_t count;
  std::uint64_t* sink;  ///< a word of its own
};

inline constexpr int kFlushThreads = 1024;

}  // namespace farwarp::harness
