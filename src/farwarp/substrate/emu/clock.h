#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE std::uint64_t cycles() { return emu::cycles(); }
FARWARP_DEVICE std::uint64_t nanoseconds() { return emu::nanoseconds(); }

template <int count>
FARWARP_DEVICE bool park(const void* const (&addresses)[count], int used, std::uint64_t deadline, std::uint32_t) {
  emu::park(addresses, used < count ? used : count, deadline);
  return true;
}

}  // namespace farwarp::FARWARP_TARGET
