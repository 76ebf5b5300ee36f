// The store warp: one for each multiplier. It sends the boxes that its multiplier fills to their owners, and signals
// the owners.
//
//   multiplier  wait empty[b] -> write box b, proxy fence -> arrive full[b] -> goes on multiplying
//   store warp  if K is split: wait full[b], read the mark; a work without a tile: arrive empty[b], next work
//               wait for the owners' ready cells
//               for each box: wait full[b] -> tensor store, commit; several owners: the lanes load the box and store
//                 its rows
//               boxes that have been read: arrive empty[b], after the band's last box; with 256 columns boxes 0 and 1
//                 before boxes 2 and 3
//               all boxes of the band have arrived: release fence, flags
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/block_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/exchange.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_reduce {

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// [warp] Sends boxes to owners. If all rows of a box have one owner, lane 0 starts a tensor copy. Otherwise the lanes
/// store the rows, because a tensor copy cannot begin in the middle of a swizzled box.
class Sender {
 public:
  FARWARP_DEVICE Sender(Call& call, const Args& args) : call_(call), args_(args) {}

  /// Begins the band at (row, column) of the whole sum, which may be outside: waits until its owners permit to write
  /// their memory.
  /// `dropped`: the band is flagged, but not sent.
  FARWARP_DEVICE void open(int row, int column, bool dropped) {
    const bool inside = row < args_.m && column < args_.n;
    owners_ = inside ? args_.bands.owners_of(row) : OwnerRange{0, -1};
    row_ = row;
    column_ = column;
    bool permitted = true;
    if (lane_index() == 0) permitted = permissions_.await<Failure::inlined>(call_, args_, owners_);
    warp_sync();
    sends_ = ballot(!permitted) == 0 && inside && !dropped;  // without permission, the owner may still read the memory
  }

  /// Sends a box of `rows` x 64 of the band.
  FARWARP_DEVICE void send_box(int row, int column, int rows, Shared<std::byte> box) const {
    if (!sends_) return;
    if (owners_.first != owners_.last) {
      store_rows(row, column, rows, box);
    } else if (lane_index() == 0) {
      tensor_store(args_.inbox_maps[owners_.first], row - owners_.first * args_.bands.owned, column, box);
      bulk_commit();
    }
  }

  /// Waits until the band has arrived as a whole, then stores its flags. All its boxes have been given back before.
  FARWARP_DEVICE void signal() {
    if (lane_index() != 0) return;
    bulk_wait_all();
    if (owners_.first > owners_.last || !call_.live) return;
    fence<Order::release, Scope::system>();
    for (int owner = owners_.first; owner <= owners_.last; ++owner)
      signal_cell<Order::relaxed>(flag_at(args_, owner, row_, column_), tagged(call_.epoch, 0));
  }

 private:
  /// Each lane stores 16 bytes at a time.
  FARWARP_DEVICE void store_rows(int row, int column, int rows, Shared<std::byte> box) const {
    const Bands& bands = args_.bands;
#pragma unroll 1
    for (int i = lane_index(); i < rows * 8; i += Target::kWarpSize) {
      const int in_box = i / 8, to = column + i % 8 * 8, of_sum = row + in_box;
      if (of_sum >= args_.m || to >= args_.n) continue;
      const int owner = of_sum / bands.owned;
      const std::int64_t place = std::int64_t{args_.view.rank} * bands.owned + of_sum - owner * bands.owned;
      const Shared<std::byte> from = box + swizzled_offset(in_box, i % 8 * 16);
      store(peer_address<Vec16>(args_.view, owner, args_.offsets.inbox + (place * args_.n + to) * 2),
            load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(from.raw))));
    }
  }

  Call& call_;  ///< only lane 0's `live` is up to date
  const Args& args_;
  Permissions permissions_;   ///< used by lane 0
  OwnerRange owners_{0, -1};  ///< of the open band
  int row_ = 0, column_ = 0;
  bool sends_ = false;
};

/// [warp] The store warp's end of its multiplier's boxes.
template <class Boxes, class WaitBarrier>
class BoxConsumer {
 public:
  static constexpr int kCount = Boxes::kCount;

  FARWARP_DEVICE BoxConsumer(const Boxes& boxes, const WaitBarrier& wait) : boxes_(boxes), wait_(wait) {}

  /// Waits for the next box. False if the wait expired; then no more boxes arrive.
  FARWARP_DEVICE bool await() const {
    const bool arrived = lane_index() != 0 || wait_(boxes_.full(next_.stage), next_.parity);
    warp_sync();  // orders the lanes' reads after lane 0's wait
    return ballot(!arrived) == 0;
  }
  FARWARP_DEVICE Shared<std::byte> box() const { return boxes_.box(next_.stage); }
  /// If K is split: whether the next box, which has arrived, begins a tile.
  FARWARP_DEVICE bool starts_tile() const { return load(boxes_.mark(next_.stage)) != 0; }
  FARWARP_DEVICE void advance() { next_.advance(); }

  /// Gives back the oldest `count` boxes, each as soon as its copy has read it, or at once if it was not sent.
  /// `pending`: how many copies are newer than the last of them.
  template <int count, int pending = 0>
  FARWARP_DEVICE void give_back_after_copies() {
    warp_sync();  // after the lanes' reads of the box, if they stored its rows; Sender::signal() releases these stores
    if (lane_index() == 0) {
      bulk_wait_read<count - 1 + pending>();
      mbarrier_arrive(boxes_.empty(oldest_.stage));
    }
    oldest_.advance();
    if constexpr (count > 1) give_back_after_copies<count - 1, pending>();
  }
  /// Gives back the oldest box, which no copy reads.
  FARWARP_DEVICE void give_back_now() {
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(boxes_.empty(oldest_.stage));
    oldest_.advance();
  }

 private:
  const Boxes boxes_;
  const WaitBarrier& wait_;
  tile::RingPosition<Boxes::kCount> next_, oldest_;
};

/// [warp] Sends the boxes of the band that was begun, as they arrive. False if a wait expired.
template <int columns, bool swap_ab, class Consumer>
FARWARP_DEVICE bool send_boxes(Sender& sender, Consumer& boxes, int row, int column) {
  constexpr int kBoxes = swap_ab ? 1 : (columns + 63) / 64, kBuffers = Consumer::kCount;
  constexpr int kRows = swap_ab ? columns : 64;
#pragma unroll 1
  for (int box = 0; box < kBoxes; ++box) {
    if (box >= kBuffers) boxes.template give_back_after_copies<1, kBuffers - 1>();
    if (!boxes.await()) return false;
    const int begin = swap_ab || 64 * box + 64 <= columns ? 64 * box : columns - 64;  // as fill_boxes() writes them
    sender.send_box(row, column + begin, kRows, boxes.box());
    boxes.advance();
  }
  boxes.template give_back_after_copies < kBoxes<kBuffers ? kBoxes : kBuffers>();
  return true;
}

/// [warp] The role: sends all sums of multiplier number `multiplier`. `swap_ab`: A is w, and boxes are transposed.
template <bool swap_ab, class Block, class WaitBarrier>
FARWARP_DEVICE void store_role(Call& call, const Args& args, const Block& block, int multiplier, Turns turns,
                               const WaitBarrier& wait) {
  using Tile = typename Block::Tile;
  Sender sender(call, args);
  BoxConsumer<typename Block::Boxes, WaitBarrier> boxes(block.boxes_of(multiplier), wait);
  for (int number = turns.first; number < args.grid.works(); number += turns.stride) {
    const Work work = farwarp::tile::work_at(args.grid, number);
    if (args.grid.splits > 1) {
      if (!boxes.await()) break;
      if (!boxes.starts_tile()) {
        boxes.advance();
        boxes.template give_back_after_copies<1>();
        continue;
      }
    }
    const int first_row = args.order.at(work.at.row) * Tile::kRows + 64 * multiplier;
    const int across = work.at.column * Tile::kColumns;
    const int row = swap_ab ? across : first_row, column = swap_ab ? first_row : across;
    const TraceStart start = trace_start();
    sender.open(row, column, static_cast<std::uint32_t>(work.tile) + 1 == args.drop_put);
    if (!send_boxes<Tile::kColumns, swap_ab>(sender, boxes, row, column)) break;
    sender.signal();
    trace_warp(start, TraceWork::kSend, work.tile);
  }
  if (lane_index() == 0) bulk_wait_all();  // also after a wait that expired
}

}  // namespace farwarp::FARWARP_TARGET::gemm_reduce
