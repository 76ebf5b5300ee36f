// Partial sums in packets: each carries four neighbours of a row and says itself whether it has come, so nothing is told or fenced.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/args.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::gemm_rs::Args;
using farwarp::gemm_rs::PacketInbox;

static_assert(sizeof(Packet) == PacketInbox::kPacketBytes);

/// [thread] Sends four sums of `row` of `rank`'s inbox.
FARWARP_DEVICE void send_packet(const Call& call, const PacketInbox& inbox, int rank, int row, int four,
                                std::uint64_t data) {
  const std::int64_t place = inbox.place(call.epoch, call.view.rank, row, four);
  store_packet(peer_address<Packet>(call.view, rank, place), data, call.epoch);
}

/// [thread] Four sums over `ranks` sources, in fp32 and in their order, rounded once.
template <class T>
FARWARP_DEVICE std::uint64_t sum_fours(const std::uint64_t (&parts)[kMaxRanks], int ranks) {
  float sums[4] = {};
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {
    if (source >= ranks) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float term = to_float(T{static_cast<std::uint16_t>(parts[source] >> (16 * i))});
      sums[i] = source == 0 ? term : add(sums[i], term);
    }
  }
  const std::uint64_t low = round_pair<T>(sums[0], sums[1]), high = round_pair<T>(sums[2], sums[3]);
  return high << 32 | low;
}

/// [thread] Adds up this rank's packets of all sources into y, whose rows are the inbox's: thread number `number` of `count` on this rank.
template <class T, Failure failure>
FARWARP_DEVICE void reduce_packets(Call& call, const Args& args, int number, int count) {
  const PacketInbox& inbox = args.packets;
  const int ranks = args.view.size;
  for (int i = number; i < inbox.rows * inbox.fours && call.live; i += count) {
    Global<Packet> from[kMaxRanks];
#pragma unroll
    for (int source = 0; source < kMaxRanks; ++source)
      from[source] = own_address<Packet>(args.view, inbox.place(call.epoch, source < ranks ? source : 0, 0, i));
    std::uint64_t parts[kMaxRanks] = {};
    const Wait wait{farwarp::gemm_rs::kSitePartials, -1};
    if (!wait_packets<1, failure>(call, from, (1u << ranks) - 1, parts, wait)) return;
    store(Global<std::uint64_t>(static_cast<std::uint64_t*>(args.y)) + i, sum_fours<T>(parts, ranks));
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
