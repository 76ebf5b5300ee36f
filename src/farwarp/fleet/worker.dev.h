// What a task knows of the worker that does it: its number, and where and how vectors reach it.
#pragma once

#include "farwarp/fleet/layout.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

using namespace farwarp::fleet;

/// With a loading thread: a worker's number is its block's, and vectors are packets in the heap.
template <bool loading_thread>
struct WorkerOf {
  static constexpr bool plain = false;
  static constexpr std::int64_t shift = 0;
  FARWARP_DEVICE static int number() { return block_index(); }
  FARWARP_DEVICE static WorkerOf of_block() { return {}; }
};
/// Without: the dispatcher says. static: as above. gang: the number is claimed, and vectors are plain device memory, which the counters of steps order
/// (gang.dev.h): the first half of what stands for a packet is its data.
template <>
struct WorkerOf<false> {
  int own;             ///< number
  bool plain;          ///< gang
  std::int64_t shift;  ///< of gang: from a packet in the heap to what stands for it, in bytes

  FARWARP_DEVICE int number() const { return own; }
  FARWARP_DEVICE static WorkerOf of_block() { return {block_index(), false, 0}; }
};
using Worker = WorkerOf<Target::kHasBulkCopy>;

FARWARP_DEVICE Global<std::uint64_t> plain_data(const Worker& worker, Packet* packet) {
  return Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(packet) + worker.shift));
}

/// [thread] wait_packets() of a vector: the data of those packets whose bit is set in `wanted`.
template <int count>
FARWARP_DEVICE void wait_vector(Call& call, const Worker& worker, const Global<Packet> (&from)[count],
                                std::uint32_t wanted, std::uint64_t (&data)[count], Wait wait) {
  if (worker.plain) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (wanted >> i & 1) data[i] = load(plain_data(worker, from[i].raw));
    }
    return;
  }
  wait_packets<1>(call, from, wanted, data, wait);
}
/// [thread] Stores a packet of a vector, with the call's tag.
FARWARP_DEVICE void store_vector(const Call& call, const Worker& worker, Peer<Packet> packet, std::uint64_t data) {
  if (worker.plain) {
    store(plain_data(worker, packet.raw), data);
  } else {
    store_packet(packet, data, call.epoch);
  }
}

}  // namespace farwarp::FARWARP_TARGET::fleet
