// The memory of litmus kernels, and their flags.
#pragma once

#include "farwarp/substrate/device.h"
#include "farwarp/substrate/emu/litmus_test.h"

namespace farwarp::FARWARP_TARGET {

template <class T>
FARWARP_DEVICE T* at(std::byte* memory, std::int64_t offset) {
  return reinterpret_cast<T*>(memory + offset);
}

using Cell = SystemCell<std::uint32_t>;
using Words = Global<std::uint64_t>;

FARWARP_DEVICE Peer<std::uint64_t> data_of(const LitmusArgs& args, int rank) {
  return Peer<std::uint64_t>(at<std::uint64_t>(args.memory[rank], kLitmusData));
}
FARWARP_DEVICE Peer<Cell> flag_of(const LitmusArgs& args, int rank) {
  return Peer<Cell>(at<Cell>(args.memory[rank], kLitmusFlag));
}
FARWARP_DEVICE Words result_of(const LitmusArgs& args) {
  return Words(at<std::uint64_t>(args.memory[args.rank], kLitmusResult));
}

inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

FARWARP_DEVICE void set_flag(const LitmusArgs& args, int rank, std::uint32_t value) {
  if (args.variant == kFences) fence<Order::release, Scope::system>();
  if (args.variant == kNoRelease || args.variant == kFences) {
    store<Order::relaxed>(flag_of(args, rank), value);
  } else {
    store<Order::release>(flag_of(args, rank), value);
  }
}

FARWARP_DEVICE void wait_flag(const LitmusArgs& args, std::uint32_t value, std::uint64_t deadline = kNever) {
  const Global<Cell> flag(flag_of(args, args.rank).raw);
  const void* const addresses[] = {flag.raw};
  for (std::uint32_t tries = 0;; ++tries) {
    const bool relaxed = args.variant == kFences || args.variant == kNoAcquire;
    const std::uint32_t seen = relaxed ? load<Order::relaxed>(flag) : load<Order::acquire>(flag);
    if (seen >= value || nanoseconds() >= deadline) break;
    park(addresses, 1, deadline, tries);
  }
  if (args.variant == kFences) fence<Order::acquire, Scope::system>();
}

}  // namespace farwarp::FARWARP_TARGET
