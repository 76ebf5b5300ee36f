// What device_test.dev.cc and device_test.cc share.
#pragma once

#include <cstdint>

#include "farwarp/base/pointers.h"

namespace farwarp {

inline constexpr int kDeviceTestThreads = 128;

/// words[i] += amount, for i below count.
struct AddArgs {
  Global<std::uint32_t> words;
  std::uint32_t count;
  std::uint32_t amount;
};

/// Every block sums its threads' numbers through its shared memory and adds the sum to `total`.
struct SumArgs {
  Global<std::uint32_t> total;
};

/// Writes a word of another device's memory.
struct PutArgs {
  Peer<std::uint32_t> destination;
  std::uint32_t value;
};

}  // namespace farwarp
