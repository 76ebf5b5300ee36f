// The second half of two-shot by boxes and flags: owners send the rows that they have added up to all ranks, which copy
// them to y.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/exchange.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using namespace farwarp::gemm_ar;

using SignalCell = SystemCell<std::uint64_t>;

/// How many chunks an owner adds up.
FARWARP_DEVICE int chunks_of(const Args& args) { return gemm_reduce::chunks_of(args.reduce.bands); }

/// [warp] gemm_reduce::reduce_chunks() of this rank's rows; stores each chunk to y of this rank and to all peers, and
/// signals the peers.
template <class T, int columns, int vectors, class Next, class Await>
FARWARP_DEVICE void reduce_and_send(const Args& args, Next&& next, std::uint32_t epoch, const Await& await) {
  const WorldView& view = args.reduce.view;
  const int first_row = view.rank * args.reduce.bands.owned;
  const auto put = [&](int row, int column, Vec16 eight) {
    const int at = first_row + row;
    if (at >= args.rows) return;
    const std::int64_t place = (std::int64_t{at} * args.reduce.n + column) * 2;
    store(Global<Vec16>(reinterpret_cast<Vec16*>(static_cast<std::byte*>(args.reduce.y) + place)), eight);
    for (int i = 1; i < view.size; ++i) {
      const int peer = (view.rank + i) % view.size;
      store<Cache::streaming>(peer_address<Vec16>(view, peer, args.finished_rows + place), eight);
    }
  };
  const auto signal = [&](int chunk) {
    drain_stores();
    warp_sync();
    if (lane_index() != 0) return;
    fence<Order::release, Scope::system>();
    for (int i = 1; i < view.size; ++i) {
      const int peer = (view.rank + i) % view.size;
      signal_cell<Order::relaxed>(
          peer_address<SignalCell>(view, peer, args.signals) + (view.rank * chunks_of(args) + chunk), tagged(epoch, 0));
    }
  };
  gemm_reduce::reduce_chunks<T, columns, vectors>(args.reduce, next, await, put, signal);
}

/// [warp] Copies peers' finished rows into y. This is warp `number` of `count` on this rank; it takes every `count`-th
/// chunk, peers in turn.
template <int columns, Failure failure>
FARWARP_DEVICE void collect(Call& call, const Args& args, int number, int count) {
  const WorldView& view = args.reduce.view;
  const int chunks = chunks_of(args), peers = view.size - 1;
  call.live = ballot(!call.live) == 0;  // a lane that has polled may know of an abort that others do not
  for (int i = number; i < chunks * peers && call.live; i += count) {
    const int owner = (view.rank + 1 + i % peers) % view.size, chunk = i / peers;
    const auto [row, column] = gemm_reduce::chunk_at(args.reduce.bands, chunk);
    if (owner * args.reduce.bands.owned + row >= args.rows) continue;
    std::uint32_t value = 0;
    if (lane_index() == 0) {
      // depth 2: the owner may wait for partial sums, and their sender for a ready cell.
      wait_tagged<failure>(call, own_address<SignalCell>(view, args.signals) + (owner * chunks + chunk), call.epoch,
                           value, {.site = kSiteFinished, .peer = owner, .depth = 2});
    }
    warp_sync();
    constexpr int kVectors = columns / 8;
    for (int v = lane_index(); v < gemm_reduce::kChunkRows * kVectors; v += Target::kWarpSize) {
      const int in_shard = row + v / kVectors, at = owner * args.reduce.bands.owned + in_shard;
      const int to = column * columns + v % kVectors * 8;
      if (in_shard >= args.reduce.bands.owned || at >= args.rows || to >= args.reduce.n) continue;
      const std::int64_t place = (std::int64_t{at} * args.reduce.n + to) * 2;
      store(Global<Vec16>(reinterpret_cast<Vec16*>(static_cast<std::byte*>(args.reduce.y) + place)),
            load<Cache::streaming>(own_address<const Vec16>(view, args.finished_rows + place)));
    }
    call.live = ballot(!call.live) == 0;
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
