// The arguments of the kernel that does nothing for a while.
#pragma once

#include <cstdint>

#include "farwarp/base/pointers.h"

namespace farwarp::harness {

struct DelayArgs {
  Global<const std::uint64_t> word;  ///< nobody writes it
  std::uint64_t nanoseconds;
};

inline constexpr int kDelayThreads = 32;

}  // namespace farwarp::harness
