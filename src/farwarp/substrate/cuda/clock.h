#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE std::uint64_t cycles() {
  std::uint64_t count;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(count));
  return count;
}

FARWARP_DEVICE std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// No pause is needed: the next poll takes a round trip to memory.
template <int count>
FARWARP_DEVICE bool park(const void* const (&)[count], int, std::uint64_t, std::uint32_t tries) {
  return tries % 32 == 31;
}

}  // namespace farwarp::FARWARP_TARGET
