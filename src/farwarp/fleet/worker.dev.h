// What a task knows of the worker that does it: its number, and where and how vectors reach it.
#pragma once

#include <type_traits>

#include "farwarp/fleet/layout.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

using namespace farwarp::fleet;

/// Vectors are packets in the heap.
struct PacketWorker {
  static constexpr bool plain = false;
  FARWARP_DEVICE static int number() { return block_index(); }
  FARWARP_DEVICE static PacketWorker of_block() { return {}; }
  /// Never called: `plain` is false. Code for all workers names it.
  FARWARP_DEVICE static Global<std::uint64_t> data_of(Packet*) { return Global<std::uint64_t>(nullptr); }
};
/// Without a loading thread the dispatcher says. static: as above. gang: the number is claimed, and vectors are plain device memory, which the counters of steps order
/// (gang.dev.h): the first half of what stands for a packet is its data.
struct GangWorker {
  int own;             ///< number
  bool plain;          ///< gang
  std::int64_t shift;  ///< of gang: from a packet in the heap to what stands for it, in bytes

  FARWARP_DEVICE int number() const { return own; }
  FARWARP_DEVICE static GangWorker of_block() { return {block_index(), false, 0}; }
  FARWARP_DEVICE Global<std::uint64_t> data_of(Packet* packet) const {
    return Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(packet) + shift));
  }
};
/// Vectors that stream: plain device memory, which the counter of steps orders (phases.dev.h). Only the data of packets, eight bytes each, are there.
struct BlockStreamWorker {
  static constexpr bool plain = true;
  const std::byte* heap;  ///< the rank's
  std::byte* data;        ///< of a packet at its begin

  FARWARP_DEVICE static int number() { return block_index(); }
  FARWARP_DEVICE static BlockStreamWorker of_block(const std::byte* heap, std::byte* data) { return {heap, data}; }
  FARWARP_DEVICE Global<std::uint64_t> data_of(Packet* packet) const {
    return Global<std::uint64_t>(
        reinterpret_cast<std::uint64_t*>(data + (reinterpret_cast<const std::byte*>(packet) - heap) / 2));
  }
};
/// Without a loading thread the dispatcher says the number, as above.
struct NumberedStreamWorker : BlockStreamWorker {
  int own;

  FARWARP_DEVICE int number() const { return own; }
  FARWARP_DEVICE static NumberedStreamWorker of_block(const std::byte* heap, std::byte* data) {
    return {{heap, data}, block_index()};
  }
};
using StreamWorker = std::conditional_t<Target::kHasBulkCopy, BlockStreamWorker, NumberedStreamWorker>;
template <int columns>
using Worker = std::conditional_t<streams(columns), StreamWorker,
                                  std::conditional_t<Target::kHasBulkCopy, PacketWorker, GangWorker>>;

/// [thread] wait_packets() of a vector: the data of those packets whose bit is set in `wanted`.
template <int count, class SomeWorker>
FARWARP_DEVICE void wait_vector(Call& call, const SomeWorker& worker, const Global<Packet> (&from)[count],
                                std::uint32_t wanted, std::uint64_t (&data)[count], Wait wait) {
  if (worker.plain) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (wanted >> i & 1) data[i] = load(worker.data_of(from[i].raw));
    }
    return;
  }
  wait_packets<1>(call, from, wanted, data, wait);
}
/// [thread] Stores a packet of a vector, with the call's tag.
template <class SomeWorker>
FARWARP_DEVICE void store_vector(const Call& call, const SomeWorker& worker, Peer<Packet> packet, std::uint64_t data) {
  if (worker.plain) {
    store(worker.data_of(packet.raw), data);
  } else {
    store_packet(packet, data, call.epoch);
  }
}

}  // namespace farwarp::FARWARP_TARGET::fleet
