// A worker: its number, and how it reaches the buffers between tasks (layout.h).
#pragma once

#include <type_traits>

#include "farwarp/fleet/layout.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

using namespace farwarp::fleet;

/// Buffers of packets, in the heap.
struct PacketBuffers {
  static constexpr bool plain = false;
  /// Never called, as `plain` is false: code for all kinds names it.
  FARWARP_DEVICE static Global<std::uint64_t> plain_at(std::int64_t) { return Global<std::uint64_t>(nullptr); }
};
/// Plain buffers, in device memory.
struct PlainBuffers {
  static constexpr bool plain = true;
  std::byte* memory;  ///< Launch::plain

  FARWARP_DEVICE Global<std::uint64_t> plain_at(std::int64_t buffer) const {
    return Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(memory + buffer));
  }
};
/// Without bulk copies up to eight columns are packets for the static dispatcher, and plain for gang.
struct EitherBuffers {
  bool plain;
  std::byte* memory;

  FARWARP_DEVICE Global<std::uint64_t> plain_at(std::int64_t buffer) const {
    return PlainBuffers{memory}.plain_at(buffer);
  }
};
template <int columns>
using Buffers = std::conditional_t<streams(columns), PlainBuffers,
                                   std::conditional_t<Target::kHasBulkCopy, PacketBuffers, EitherBuffers>>;

template <int columns>
struct Worker {
  int claimed;  ///< its number, which the dispatcher says where there is no loading thread
  Buffers<columns> buffers;

  /// Among the workers of the launch.
  FARWARP_DEVICE int number() const { return Target::kHasBulkCopy ? block_index() : claimed; }
};

FARWARP_DEVICE Global<Packet> packets_at(const WorldView& view, std::int64_t buffer) {
  return own_address<Packet>(view, buffer);
}

/// [thread] The fours of a buffer at the places `at` whose bits are set in `wanted`: packets once they have arrived,
/// plain ones as they are.
template <int count, class SomeBuffers>
FARWARP_DEVICE void read_fours(Call& call, const SomeBuffers& buffers, std::int64_t buffer,
                               const std::int64_t (&at)[count], std::uint32_t wanted, std::uint64_t (&data)[count],
                               Wait wait) {
  if (buffers.plain) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (wanted >> i & 1) data[i] = load(buffers.plain_at(buffer) + at[i]);
    }
    return;
  }
  Global<Packet> from[count];
#pragma unroll
  for (int i = 0; i < count; ++i) from[i] = packets_at(call.view, buffer) + at[i];
  wait_packets<1>(call, from, wanted, data, wait);
}
/// [thread] Stores a four; as a packet, with the call's tag.
template <class SomeBuffers>
FARWARP_DEVICE void store_four_at(const Call& call, const SomeBuffers& buffers, std::int64_t buffer, std::int64_t at,
                                  std::uint64_t data) {
  if (buffers.plain) {
    store(buffers.plain_at(buffer) + at, data);
  } else {
    store_packet(peer_address<Packet>(call.view, call.view.rank, buffer) + at, data, call.epoch);
  }
}

}  // namespace farwarp::FARWARP_TARGET::fleet
