// gemm-rs of two ranks on Hopper, if owners fetch. Each rank multiplies the peer's rows first and stores these partial
// sums in its own memory. While it multiplies its own rows, its store warps load the peer's part of each tile over the
// link into the boxes of the epilogue, where the multipliers add their sums.
//
//   tile of the peer's rows:  store warp   empty[b] of all boxes
//                             multiplier   empty[b] -> box := rounded sums -> full[b]
//                             store warp   full[b] -> this rank's memory; all have arrived: fence, flag at the peer
//   tile of own rows:         store warp   wait for the peer's flag; its part -> box b -> empty[b]
//                             multiplier   empty[b] -> box := round(box + rounded sums) -> full[b]
//                             store warp   full[b] -> y
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/roles_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::gemm_reduce::Args;
using farwarp::tile::Turns;
using farwarp::tile::Work;

/// The part of a tile that one multiplier sums, its flag's band.
struct FetchedBand {
  int row, column;  ///< of the whole sum; may be outside
  int owner;        ///< -1: outside

  FARWARP_DEVICE FetchedBand(const Args& args, int row, int column)
      : row(row), column(column), owner(row < args.m && column < args.n ? row / args.bands.owned : -1) {}
  FARWARP_DEVICE int owned_row(const Args& args) const { return row - owner * args.bands.owned; }
};

/// [warpgroup] A multiplier's end of its boxes, with the interface of tile::BoxWriter. All boxes of a tile are open at
/// once. In tiles of own rows they hold the peer's part.
template <class Boxes, class WaitBarrier>
class AddingProducer {
 public:
  FARWARP_DEVICE AddingProducer(const Boxes& boxes, const WaitBarrier& wait) : boxes_(boxes), wait_(wait) {}

  /// `adds`: the tile's rows are own.
  FARWARP_DEVICE void begin(bool adds) { adds_ = adds; }

  template <int count, class Write, class SendBox>
  FARWARP_DEVICE void write_boxes(const Write& write, const SendBox&) {
    static_assert(count <= Boxes::kCount);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      wait_(boxes_.empty(next_.stage), next_.parity);
      write(i, boxes_.box(next_.stage));
      proxy_fence();
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(boxes_.full(next_.stage));
      next_.advance();
    }
  }
  /// Two neighbours of a row. The two ranks' terms are added in fp32: the order of two does not matter.
  template <class T>
  FARWARP_DEVICE void put(Shared<std::uint32_t> to, std::uint32_t pair) const {
    if (adds_) {
      const std::uint32_t other = load(to);
      const auto term = [](std::uint32_t of, int i) { return to_float(T{static_cast<std::uint16_t>(of >> (16 * i))}); };
      pair = round_pair<T>(add(term(pair, 0), term(other, 0)), add(term(pair, 1), term(other, 1)));
    }
    store(to, pair);
  }

 private:
  const Boxes boxes_;
  const WaitBarrier& wait_;
  tile::RingPosition<Boxes::kCount> next_;
  bool adds_ = false;
};

/// [warp] The store warp of one multiplier. Lanes load the peer's part, because tensor copies from a peer's memory
/// delay those of the main loop (MEASURED.md). One lane does the rest.
template <class Block, class WaitBarrier>
class FetchingStore {
 public:
  FARWARP_DEVICE FetchingStore(Call& call, const Args& args, const Block& block, int multiplier,
                               const WaitBarrier& wait)
      : call_(call), args_(args), boxes_(block.boxes_of(multiplier)), multiplier_(multiplier), wait_(wait) {}

  FARWARP_DEVICE void run(Turns turns) {
    for (int number = turns.first; number < args_.grid.works(); number += turns.stride) {
      const Work work = farwarp::tile::work_at(args_.grid, number);
      const FetchedBand band(args_, args_.order.at(work.at.row) * Tile::kRows + 64 * multiplier_,
                             work.at.column * Tile::kColumns);
      const TraceStart start = trace_start();
      const bool own = band.owner == args_.view.rank;
      if (lane_index() == 0) bulk_wait_read<0>();  // the copies of the tile before have read its boxes
      warp_sync();
      const bool dropped = static_cast<std::uint32_t>(work.tile) + 1 == args_.drop_put;
      const bool sends = own ? fetch(band) && !dropped : open(band, dropped);
      bool filled = true;
      if (lane_index() == 0) {
        filled = send(band, sends);
        if (filled && band.owner >= 0 && !own) signal(band);
      }
      if (ballot(!filled) != 0) break;
      for (int i = 0; i < kBoxes; ++i) next_.advance();
      trace_warp(start, TraceWork::kSend, work.tile);
    }
    if (lane_index() == 0) bulk_wait_all();  // also after a wait that expired
    warp_sync();
  }

 private:
  using Tile = typename Block::Tile;
  static constexpr int kBoxes = (Tile::kColumns + 63) / 64;
  static constexpr int kAtOnce = 8;  ///< vectors of a lane under way
  static_assert(Tile::kColumns % 64 == 0 && kBoxes <= Block::kBuffers);

  /// Opens all boxes of a tile of own rows, with the peer's part in them. False: the call is over, and the boxes hold
  /// anything.
  FARWARP_DEVICE bool fetch(const FetchedBand& band) {
    const int peer = 1 - args_.view.rank;
    if (lane_index() == 0) {
      const Global<gemm_reduce::Flag> flags = own_address<gemm_reduce::Flag>(args_.view, args_.offsets.flags);
      const std::int64_t flag =
          args_.bands.flag_index(peer, band.owned_row(args_) / args_.bands.rows, band.column / args_.bands.columns);
      std::uint32_t value = 0;
      // depth 1: the peer that has not signalled may itself wait for a ready cell.
      wait_tagged<Failure::inlined>(call_, flags + flag, call_.epoch, value,
                                    {.site = gemm_reduce::kSitePartials, .peer = peer, .depth = 1});
    }
    warp_sync();  // orders all lanes' loads after the acquire
    const bool arrived = ballot(!call_.live) == 0;
    auto at = next_;
    for (int i = 0; i < kBoxes; ++i) {
      if (arrived) load_box(peer, band.owned_row(args_), band.column + 64 * i, boxes_.box(at.stage));
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(boxes_.empty(at.stage));
      at.advance();
    }
    return arrived;
  }

  /// Copies a box of the peer's parts, which begins at (row, column) there.
  FARWARP_DEVICE void load_box(int peer, int row, int column, Shared<std::byte> box) const {
    constexpr int kRowVectors = 8, kRows = Target::kWarpSize / kRowVectors;
    const int in_row = lane_index() % kRowVectors, first = lane_index() / kRowVectors;
    if (column + 8 * in_row >= args_.n) return;
    const std::int64_t pitch = std::int64_t{2} * args_.n;
    const Peer<const std::byte> from = peer_address<const std::byte>(
        args_.view, peer, args_.offsets.inbox + (row + first) * pitch + (column + 8 * in_row) * 2);
#pragma unroll 1
    for (int begin = 0; begin < 64; begin += kAtOnce * kRows) {
      Vec16 vectors[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        vectors[i] = load<Cache::streaming>(
            Peer<const Vec16>(reinterpret_cast<const Vec16*>((from + (begin + i * kRows) * pitch).raw)));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const Shared<std::byte> to = box + swizzled_offset(begin + i * kRows + first, in_row * 16);
        store(Shared<Vec16>(reinterpret_cast<Vec16*>(to.raw)), vectors[i]);
      }
    }
  }

  /// Opens all boxes of a tile of the peer's rows. Then waits until the peer has read what the call before stored. True
  /// on lane 0 if the tile may be stored.
  FARWARP_DEVICE bool open(const FetchedBand& band, bool dropped) {
    if (lane_index() != 0) return false;
    auto at = next_;
    for (int i = 0; i < kBoxes; ++i) {
      mbarrier_arrive(boxes_.empty(at.stage));
      at.advance();
    }
    if (band.owner < 0) return false;
    return permissions_.template await<Failure::inlined>(call_, args_, {band.owner, band.owner}) && !dropped;
  }

  /// [thread] Stores the boxes as they become full. False if a wait expired.
  FARWARP_DEVICE bool send(const FetchedBand& band, bool sends) const {
    const TensorMap& to = band.owner == args_.view.rank ? args_.y_map : args_.parts_map;
    auto at = next_;
    for (int i = 0; i < kBoxes; ++i) {
      if (!wait_(boxes_.full(at.stage), at.parity)) return false;
      if (sends) {
        tensor_store(to, band.owned_row(args_), band.column + 64 * i, boxes_.box(at.stage));
        bulk_commit();
      }
      at.advance();
    }
    return true;
  }

  /// [thread] Waits until the band has been stored, then stores its flag at the owner.
  FARWARP_DEVICE void signal(const FetchedBand& band) const {
    bulk_wait_all();
    if (!call_.live) return;
    fence<Order::release, Scope::system>();
    signal_cell<Order::relaxed>(gemm_reduce::flag_at(args_, band.owner, band.row, band.column), tagged(call_.epoch, 0));
  }

  Call& call_;  ///< only lane 0's `live` is up to date
  const Args& args_;
  const typename Block::Boxes boxes_;
  const int multiplier_;
  const WaitBarrier& wait_;
  gemm_reduce::Permissions permissions_;  ///< used by lane 0
  tile::RingPosition<Block::kBuffers> next_;
};

template <class T, int columns>
struct ReduceScatterByFetch {
  using Block = gemm_reduce::SendingBlock<T, columns, farwarp::gemm_reduce::kFetchBoxesOf256>;
  static constexpr bool kByWords = false, kClusters = false;
  static constexpr gemm_reduce::RegisterBudget kRegisters{88, 208};

  const Args& args;

  template <class WaitBarrier>
  FARWARP_DEVICE void send(const Block& block, int multiplier, Turns turns, const WaitBarrier& wait) const {
    if (lane_index() == 0) {
      tensor_prefetch(args.parts_map);
      tensor_prefetch(args.y_map);
    }
    Call call = block.await_call(args.view, args.slot, wait);
    FetchingStore<Block, WaitBarrier>(call, args, block, multiplier, wait).run(turns);
  }
  template <class WaitBarrier>
  FARWARP_DEVICE void run_multiplier(const Block& block, int multiplier, Turns turns, const WaitBarrier& wait) const {
    using Tile = typename Block::Tile;
    const Global<const T> bias(static_cast<const T*>(args.bias));
    AddingProducer<typename Block::Boxes, WaitBarrier> producer(block.boxes_of(multiplier), wait);
    const auto fill = [&](const Work&, int row, int column, const float(&sums)[Tile::kSums]) {
      const auto send_box = [](int, int, Shared<std::byte>) {};  // nothing: the store warp sends
      producer.begin(FetchedBand(args, row + 64 * multiplier, column).owner == args.view.rank);
      tile::fill_multiplier_boxes<Tile, false>(producer, send_box, multiplier, row, column, bias, args.n, sums);
    };
    gemm_reduce::multiply_works(args, block, multiplier, turns, wait, fill, [] {});
  }
  template <class WaitBarrier>
  FARWARP_DEVICE void reduce(const Block&, const WaitBarrier&) const {}
  template <class WaitBarrier>
  FARWARP_DEVICE void after_done(const Block&, const WaitBarrier&) const {}
};

template <class T, int columns>
FARWARP_DEVICE void gemm_rs_fetch_wgmma(const Args& args) {
  gemm_reduce::run_block(args, ReduceScatterByFetch<T, columns>{args});
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
