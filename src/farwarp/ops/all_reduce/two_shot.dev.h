// Two-shot, by chunks and signals: every rank owns a part of the tensor. A warp does chunk j of all parts: it sends
// them to their owners, adds up that of its own rank's part and sends the sums to all ranks, and collects those of the
// other parts. If a call has few chunks, a group of warps shares the peers of chunk j, and the first of them adds up.
#pragma once

#include "farwarp/ops/all_reduce/tensor.dev.h"

namespace farwarp::FARWARP_TARGET::all_reduce {

using Signal = SystemCell<std::uint64_t>;

/// Vectors of a part.
struct VectorRange {
  std::int64_t first, last;
};

template <class T, int most>
struct TwoShot {
  const Args& args;
  Call& call;
  int group;  ///< this warp's number among the warps of a chunk

  /// Vectors that a lane has under way at a time: when it copies, and when it adds up, each from all sources.
  static constexpr int kCopied = 4, kAdded = 8 / most;

  /// The rank after this one, by `i` < ranks.
  FARWARP_DEVICE int rank_after(int i) const {
    const int rank = args.view.rank + i;
    return rank < args.view.size ? rank : rank - args.view.size;
  }
  /// Whether this warp, of those of a chunk, sends to `peer` and collects from it.
  FARWARP_DEVICE bool is_mine(int peer) const {
    const int after = peer - args.view.rank;
    return ((after < 0 ? after + args.view.size : after) - 1) % args.groups == group;
  }
  /// Vectors of `owner`'s part.
  FARWARP_DEVICE std::int64_t vectors_of(int owner) const {
    const std::int64_t left = args.vectors - owner * args.part_vectors;
    return left < 0 ? 0 : left < args.part_vectors ? left : args.part_vectors;
  }
  FARWARP_DEVICE bool has_chunk(int owner, std::int64_t chunk) const {
    return chunk * args.chunk_vectors < vectors_of(owner);
  }
  /// What this lane takes of a chunk of `owner`'s part: from first, every kWarpSize-th, below last.
  FARWARP_DEVICE VectorRange of_lane(int owner, std::int64_t chunk) const {
    const std::int64_t first = chunk * args.chunk_vectors, end = first + args.chunk_vectors, part = vectors_of(owner);
    return {first + lane_index(), end < part ? end : part};
  }
  /// In every heap: the offset of a vector of `source`'s partial or finished sums.
  FARWARP_DEVICE std::int64_t place(Kind kind, int source, std::int64_t vector) const {
    return args.parts + ((kind * args.view.size + source) * args.part_pitch + vector) * kVectorBytes;
  }
  FARWARP_DEVICE std::int64_t signal_place(Kind kind, int source, std::int64_t chunk) const {
    return args.signals +
           ((kind * args.view.size + source) * args.signal_pitch + chunk) * static_cast<int>(sizeof(Signal));
  }

  FARWARP_DEVICE bool is_dropped(std::int64_t chunk) const {
    return static_cast<std::uint64_t>(chunk) + 1 == args.drop_put;
  }
  /// [thread] Tells `to` that a chunk of this rank has been stored there. Within signal_after_warp().
  FARWARP_DEVICE void signal(int to, Kind kind, std::int64_t chunk) const {
    if (kind == kPartials && is_dropped(chunk)) return;
    signal_cell<Order::relaxed>(peer_address<Signal>(args.view, to, signal_place(kind, args.view.rank, chunk)),
                                tagged(call.epoch, 0));
  }
  /// [warp] Waits until each peer for which `sends(peer)` is true has signalled the chunk. False: the call is over.
  template <class Sends>
  FARWARP_DEVICE bool await(Kind kind, std::int64_t chunk, const Sends& sends, Wait wait) const {
    const int peer = lane_index();
    if (peer < args.view.size && peer != args.view.rank && sends(peer)) {
      std::uint32_t unused = 0;
      wait.peer = peer;
      wait_tagged(call, own_address<Signal>(args.view, signal_place(kind, peer, chunk)), call.epoch, unused, wait);
    }
    warp_sync();
    return ballot(!call.live) == 0;
  }

  /// [thread] store_to(vector, load_from(vector)) for the lane's vectors, several loads at a time.
  template <class Load, class Store>
  FARWARP_DEVICE static void copy(VectorRange range, const Load& load_from, const Store& store_to) {
#pragma unroll 1
    for (std::int64_t first = range.first; first < range.last; first += kCopied * Target::kWarpSize) {
      Vec16 vectors[kCopied];
      if constexpr (!Target::kHasBulkCopy) {  // arrived() takes all of them
        for (Vec16& vector : vectors) vector = {};
      }
#pragma unroll
      for (int v = 0; v < kCopied; ++v) {
        const std::int64_t vector = first + v * Target::kWarpSize;
        if (vector < range.last) vectors[v] = load_from(vector);
      }
#pragma unroll
      for (Vec16& vector : vectors) vector = arrived(vector);
#pragma unroll
      for (int v = 0; v < kCopied; ++v) {
        const std::int64_t vector = first + v * Target::kWarpSize;
        if (vector < range.last) store_to(vector, vectors[v]);
      }
    }
  }

  /// [warp] Sends chunk `chunk` of this warp's peers' parts to their owners.
  FARWARP_DEVICE void send_partials(std::int64_t chunk) const {
    const TraceStart start = trace_start();
#pragma unroll 1
    for (int i = 1 + group; i < args.view.size; i += args.groups) {
      const int to = rank_after(i);
      const Peer<Vec16> inbox = peer_address<Vec16>(args.view, to, place(kPartials, args.view.rank, 0));
      copy(
          of_lane(to, chunk),
          [&](std::int64_t vector) { return load_vector<T>(args, to * args.part_vectors + vector); },
          [&](std::int64_t vector, Vec16 value) { store<Cache::streaming>(inbox + vector, value); });
    }
    signal_after_warp([&] {
      for (int i = 1 + group; i < args.view.size; i += args.groups) {
        if (const int to = rank_after(i); has_chunk(to, chunk)) signal(to, kPartials, chunk);
      }
    });
    trace_warp(start, TraceWork::kSend, chunk);
  }

  /// [thread] Adds up the lane's vectors of this rank's part, and sends the sums.
  FARWARP_DEVICE void add_up(VectorRange range) const {
    const int rank = args.view.rank, ranks = args.view.size;
    const std::int64_t part = rank * args.part_vectors;
#pragma unroll 1
    for (std::int64_t first = range.first; first < range.last; first += kAdded * Target::kWarpSize) {
      Vec16 parts[kAdded][most], own[kAdded];
#pragma unroll
      for (int v = 0; v < kAdded; ++v) {  // all loads are issued before the first is used
        const std::int64_t vector = first + v * Target::kWarpSize;
        if (vector >= range.last) continue;
#pragma unroll
        for (int source = 0; source < most; ++source) {
          if (source < ranks && source != rank)
            parts[v][source] =
                load<Cache::streaming>(own_address<const Vec16>(args.view, place(kPartials, source, vector)));
        }
        own[v] = load_vector<T>(args, part + vector);
      }
#pragma unroll
      for (int v = 0; v < kAdded; ++v) {
        const std::int64_t vector = first + v * Target::kWarpSize;
        if (vector >= range.last) continue;
#pragma unroll
        for (int source = 0; source < most; ++source) {
          if (source == rank) parts[v][source] = own[v];
        }
        const Vec16 sum = tile::sum_in_order<T>(parts[v], ranks);
        store_vector<T>(args, part + vector, sum);
#pragma unroll 1
        for (int i = 1; i < ranks; ++i)
          store<Cache::streaming>(peer_address<Vec16>(args.view, rank_after(i), place(kFinished, rank, vector)), sum);
      }
    }
  }

  /// [warp] Waits for a chunk of this rank's part from all peers, adds it up, and sends the sums to all peers. False:
  /// the call is over.
  FARWARP_DEVICE bool reduce(std::int64_t chunk) const {
    if (!has_chunk(args.view.rank, chunk)) return true;
    const auto all = [](int) { return true; };
    if (!await(kPartials, chunk, all, {.site = kSitePartials, .peer = -1})) return false;
    const TraceStart start = trace_start();
    add_up(of_lane(args.view.rank, chunk));
    trace_warp(start, TraceWork::kReduce, chunk);
    signal_after_warp([&] {
      for (int i = 1; i < args.view.size; ++i) signal(rank_after(i), kFinished, chunk);
    });
    return true;
  }

  /// [warp] Waits for the finished sums of a chunk of this warp's peers' parts, and copies them to the output. False:
  /// the call is over.
  FARWARP_DEVICE bool collect(std::int64_t chunk) const {
    // depth 1: the owner may wait for partial sums.
    if (!await(kFinished, chunk, [&](int owner) { return is_mine(owner) && has_chunk(owner, chunk); },
               {.site = kSiteFinished, .peer = -1, .depth = 1}))
      return false;
#pragma unroll 1
    for (int i = 1 + group; i < args.view.size; i += args.groups) {
      const int owner = rank_after(i);
      const Global<const Vec16> inbox = own_address<const Vec16>(args.view, place(kFinished, owner, 0));
      copy(
          of_lane(owner, chunk), [&](std::int64_t vector) { return load<Cache::streaming>(inbox + vector); },
          [&](std::int64_t vector, Vec16 value) { store_vector<T>(args, owner * args.part_vectors + vector, value); });
    }
    return true;
  }
};

template <class T, int most>
FARWARP_DEVICE void two_shot(const Args& args) {
  Call call = join_call(args.view, args.slot);
  if (!call.live || keeps_cells(call)) return;
  const int at_once = num_blocks() * (sending_threads() / Target::kWarpSize) / args.groups;  // chunks
  const int mine = warp_index() * num_blocks() + block_index();  // few chunks: on all multiprocessors
  if (mine >= at_once * args.groups) return;
  const TwoShot<T, most> operation{args, call, mine / at_once};
  const std::int64_t chunks = (args.part_vectors + args.chunk_vectors - 1) / args.chunk_vectors;
  const int first = mine % at_once;
  for (std::int64_t chunk = first; chunk < chunks; chunk += at_once) operation.send_partials(chunk);
  for (std::int64_t chunk = first; chunk < chunks + at_once; chunk += at_once) {
    if (operation.group == 0 && chunk < chunks && !operation.reduce(chunk)) return;
    if (chunk >= at_once && !operation.collect(chunk - at_once)) return;
  }
}

}  // namespace farwarp::FARWARP_TARGET::all_reduce
