#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE std::uint64_t cycles() { return __builtin_amdgcn_s_memtime(); }

// s_memrealtime counts at a constant 100 MHz.
FARWARP_DEVICE std::uint64_t nanoseconds() { return __builtin_amdgcn_s_memrealtime() * 10; }

// s_sleep 1 gives the SIMD's issue slots to other waves for 64 cycles. That is short compared with the round trip of a
// poll.
template <int count>
FARWARP_DEVICE bool park(const void* const (&)[count], int, std::uint64_t, std::uint32_t tries) {
  __builtin_amdgcn_s_sleep(1);
  return tries % 32 == 31;
}

}  // namespace farwarp::FARWARP_TARGET
