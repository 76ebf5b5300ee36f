// After the reduction: owners hand out finished rows, everybody collects them.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/reduce.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using farwarp::gemm_ar::Args;

using ToldCell = SystemCell<std::uint64_t>;

/// Units of one owner.
FARWARP_DEVICE int units_of(const Args& args) { return gemm_rs::units_of(args.rs.bands); }

/// [warp] Adds up the units of this rank's rows that `next()` names, as gemm_rs::reduce_role(), and hands each to all ranks.
template <class T, int columns, int vectors, class Next, class Await>
FARWARP_DEVICE void reduce_and_share(const Args& args, Next&& next, std::uint32_t epoch, const Await& await) {
  const WorldView& view = args.rs.view;
  const int first_row = view.rank * args.rs.bands.owned;
  const auto put = [&](int row, int column, Vec16 eight) {
    const int at = first_row + row;
    if (at >= args.rows) return;
    const std::int64_t place = (std::int64_t{at} * args.rs.n + column) * 2;
    store(Global<Vec16>(reinterpret_cast<Vec16*>(static_cast<std::byte*>(args.rs.y) + place)), eight);
    for (int i = 1; i < view.size; ++i) {
      const int peer = (view.rank + i) % view.size;
      store<Cache::streaming>(peer_address<Vec16>(view, peer, args.sums + place), eight);
    }
  };
  const auto tell = [&](int unit) {
    drain_stores();
    warp_sync();
    if (lane_index() != 0) return;
    fence<Order::release, Scope::system>();
    for (int i = 1; i < view.size; ++i) {
      const int peer = (view.rank + i) % view.size;
      store<Order::relaxed>(peer_address<ToldCell>(view, peer, args.told) + (view.rank * units_of(args) + unit),
                            tagged(epoch, 0));
    }
  };
  gemm_rs::reduce_role<T, columns, vectors>(args.rs, next, await, put, tell);
}

/// [warp] Copies what peers have finished into y: warp number `number` of `count` on this rank, peers in turn.
template <int columns, Failure failure>
FARWARP_DEVICE void collect(Call& call, const Args& args, int number, int count) {
  const WorldView& view = args.rs.view;
  const int units = units_of(args), peers = view.size - 1;
  call.live = ballot(!call.live) == 0;  // who polled before knows of an abort first
  for (int i = number; i < units * peers && call.live; i += count) {
    const int owner = (view.rank + 1 + i % peers) % view.size, unit = i / peers;
    const auto [row, column] = gemm_rs::unit_at(args.rs.bands, unit);
    if (owner * args.rs.bands.owned + row >= args.rows) continue;
    std::uint32_t value = 0;
    if (lane_index() == 0) {
      // Behind the owner's wait for partial sums, which may be behind an entry.
      wait_tagged<failure>(call, own_address<ToldCell>(view, args.told) + (owner * units + unit), call.epoch, value,
                           {farwarp::gemm_ar::kSiteSums, owner, 2});
    }
    warp_sync();
    constexpr int kVectors = columns / 8;
    for (int v = lane_index(); v < gemm_rs::kUnitRows * kVectors; v += Target::kWarpSize) {
      const int in_shard = row + v / kVectors, at = owner * args.rs.bands.owned + in_shard;
      const int to = column * columns + v % kVectors * 8;
      if (in_shard >= args.rs.bands.owned || at >= args.rows || to >= args.rs.n) continue;
      const std::int64_t place = (std::int64_t{at} * args.rs.n + to) * 2;
      store(Global<Vec16>(reinterpret_cast<Vec16*>(static_cast<std::byte*>(args.rs.y) + place)),
            load<Cache::streaming>(own_address<const Vec16>(view, args.sums + place)));
    }
    call.live = ballot(!call.live) == 0;
  }
}

/// Packet of sums [row, 4 * four ...] of `source`, at any rank.
FARWARP_DEVICE std::int64_t packet_at(const Args& args, std::uint32_t epoch, int source, int row, int four) {
  const std::int64_t in_half = (std::int64_t{source} * args.rows + row) * (args.rs.n / 4) + four;
  const std::int64_t half = std::int64_t{args.rs.view.size} * args.rows * (args.rs.n / 4);
  return args.packets + ((epoch & 1) * half + in_half) * static_cast<std::int64_t>(sizeof(Packet));
}

/// [thread] Sends four sums to all ranks, this one too.
FARWARP_DEVICE void send_packet(const Call& call, const Args& args, int row, int four, std::uint64_t data) {
  const WorldView& view = args.rs.view;
  const std::int64_t at = packet_at(args, call.epoch, view.rank, row, four);
  for (int i = 1; i <= view.size; ++i)
    store_packet(peer_address<Packet>(view, (view.rank + i) % view.size, at), data, call.epoch);
}

/// [thread] Adds up packets of all ranks: thread number `number` of `count` on this rank.
template <class T, Failure failure>
FARWARP_DEVICE void reduce_packets(Call& call, const Args& args, int number, int count) {
  const int fours = args.rs.n / 4, ranks = args.rs.view.size;
  for (int i = number; i < args.rows * fours && call.live; i += count) {
    const int row = i / fours, four = i % fours;
    Global<Packet> from[kMaxRanks];
#pragma unroll
    for (int source = 0; source < kMaxRanks; ++source)
      from[source] =
          own_address<Packet>(args.rs.view, packet_at(args, call.epoch, source < ranks ? source : 0, row, four));
    std::uint64_t data[kMaxRanks] = {};
    const Wait wait{farwarp::gemm_ar::kSitePackets, -1};
    if (!wait_packets<1, failure>(call, from, (1u << ranks) - 1, data, wait)) return;
    float sums[4] = {};
#pragma unroll
    for (int source = 0; source < kMaxRanks; ++source) {
      if (source >= ranks) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float term = to_float(T{static_cast<std::uint16_t>(data[source] >> (16 * j))});
        sums[j] = source == 0 ? term : add(sums[j], term);
      }
    }
    const std::uint64_t low = round_pair<T>(sums[0], sums[1]), high = round_pair<T>(sums[2], sums[3]);
    store(Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(static_cast<T*>(args.rs.y) +
                                                                 (std::int64_t{row} * args.rs.n + 4 * four))),
          high << 32 | low);
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
