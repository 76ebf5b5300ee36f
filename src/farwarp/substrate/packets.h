// Packets, alike on all targets: words of which each half has a tag.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void store_packet(Peer<Packet> address, std::uint64_t data, std::uint32_t tag) {
  const Packet packet = make_packet(data, tag);
  store_words(Peer<Vec16>(reinterpret_cast<Vec16*>(address.raw)), {packet.lo, packet.hi});
}

FARWARP_DEVICE Packet load_packet(Global<Packet> address) {
  const Vec16 words = load_words(Global<const Vec16>(reinterpret_cast<const Vec16*>(address.raw)));
  return {words.lo, words.hi};
}

}  // namespace farwarp::FARWARP_TARGET
