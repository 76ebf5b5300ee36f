// The store warp: one for each multiplying warpgroup. It sends the boxes that its multiplier fills to the owners, and signals bands.
//
//   multiplier  empty[b] -> writes box b, proxy fence -> full[b]                                   ... goes on multiplying
//   store warp  ready cell of the owner -> full[b] -> tensor store, commit ... read: empty[b] ... all arrived: release, flags
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/block_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/reduce.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_reduce {

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// [warp] Sends boxes to owners. A box of one owner's rows goes by a tensor copy, which lane 0 starts. A box of several owners' rows goes
/// by stores of all lanes, because no tensor copy can begin in the middle of a swizzled box.
class Sender {
 public:
  FARWARP_DEVICE Sender(Call& call, const Args& args) : call_(call), args_(args) {}

  /// Called before the first box of the band that begins at (row, column) of the whole sum, or outside it. Waits for permission to write
  /// the owners' memory. `dropped`: the band is signalled but not sent.
  FARWARP_DEVICE void open(int row, int column, bool dropped) {
    const bool inside = row < args_.m && column < args_.n;
    owners_ = inside ? args_.bands.owners_of(row) : OwnerRange{0, -1};
    row_ = row;
    column_ = column;
    bool permitted = true;
    if (lane_index() == 0) permitted = permissions_.await<Failure::in_place>(call_, args_, owners_);
    warp_sync();                                             // lane 0's permission holds for all lanes
    sends_ = ballot(!permitted) == 0 && inside && !dropped;  // without permission, memory may still be in use
  }

  /// Sends a box of `rows` x 64 of the open band.
  FARWARP_DEVICE void carry(int row, int column, int rows, Shared<std::byte> box) const {
    if (!sends_) return;
    if (owners_.first != owners_.last) {
      store_rows(row, column, rows, box);
    } else if (lane_index() == 0) {
      tensor_store(args_.inbox[owners_.first], row - owners_.first * args_.bands.owned, column, box);
      bulk_commit();
    }
  }

  /// Waits until all of the open band has arrived, then stores its flags. Called after the band's boxes have been released.
  FARWARP_DEVICE void signal() {
    if (lane_index() != 0) return;
    bulk_wait_all();
    if (owners_.first > owners_.last || !call_.live) return;
    fence<Order::release, Scope::system>();
    for (int owner = owners_.first; owner <= owners_.last; ++owner)
      store<Order::relaxed>(flag_at(args_, owner, row_, column_), tagged(call_.epoch, 0));
  }

 private:
  /// 16 bytes a lane.
  FARWARP_DEVICE void store_rows(int row, int column, int rows, Shared<std::byte> box) const {
    const Bands& bands = args_.bands;
#pragma unroll 1
    for (int i = lane_index(); i < rows * 8; i += Target::kWarpSize) {
      const int in_box = i / 8, to = column + i % 8 * 8, at = row + in_box;
      if (at >= args_.m || to >= args_.n) continue;
      const int owner = at / bands.owned;
      const std::int64_t place = std::int64_t{args_.view.rank} * bands.owned + at - owner * bands.owned;
      const Shared<std::byte> from = box + swizzled_offset(in_box, i % 8 * 16);
      store(peer_address<Vec16>(args_.view, owner, args_.at.inbox + (place * args_.n + to) * 2),
            load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(from.raw))));
    }
  }

  Call& call_;  ///< live is up to date in lane 0 only
  const Args& args_;
  Permissions permissions_;   ///< lane 0 only
  OwnerRange owners_{0, -1};  ///< of the open band
  int row_ = 0, column_ = 0;
  bool sends_ = false;
};

/// [warp] The store warp's end of its multiplier's boxes.
template <class Boxes, class Wait>
class BoxConsumer {
 public:
  static constexpr int kCount = Boxes::kCount;

  FARWARP_DEVICE BoxConsumer(const Boxes& boxes, const Wait& wait) : boxes_(boxes), wait_(wait) {}

  /// Waits for the next box. False if it was not filled; then no later one will be.
  FARWARP_DEVICE bool await() const {
    const bool come = lane_index() != 0 || wait_(boxes_.full(next_.stage), next_.parity);
    warp_sync();  // orders lane 0's acquire before the reads of all lanes
    return ballot(!come) == 0;
  }
  FARWARP_DEVICE Shared<std::byte> box() const { return boxes_.box(next_.stage); }
  /// If K is split: whether the next box, which has been filled, is a tile's first.
  FARWARP_DEVICE bool carries() const { return load(boxes_.carries(next_.stage)) != 0; }
  FARWARP_DEVICE void advance() { next_.advance(); }

  /// Releases the oldest `count` boxes, which have been sent or skipped, each as soon as its copy has read it. `pending`: copies that are
  /// newer than the last of them.
  template <int count, int pending = 0>
  FARWARP_DEVICE void release() {
    warp_sync();  // several owners: orders all lanes' reads and stores before the arrival, and before the release of signal()
    if (lane_index() == 0) {
      bulk_wait_read<count - 1 + pending>();
      mbarrier_arrive(boxes_.empty(oldest_.stage));
    }
    oldest_.advance();
    if constexpr (count > 1) release<count - 1, pending>();
  }
  /// Releases the oldest box, which lanes have read or skipped; no copy reads it.
  FARWARP_DEVICE void release_read() {
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(boxes_.empty(oldest_.stage));
    oldest_.advance();
  }

 private:
  const Boxes boxes_;
  const Wait& wait_;
  tile::RingPosition<Boxes::kCount> next_, oldest_;
};

/// [warp] Sends the boxes of the open band as they are filled. False if one was not filled.
template <int columns, bool swap_ab, class Consumer>
FARWARP_DEVICE bool send_boxes(Sender& sender, Consumer& boxes, int row, int column) {
  constexpr int kBoxes = swap_ab ? 1 : (columns + 63) / 64, kBuffers = Consumer::kCount;
  constexpr int kRows = swap_ab ? columns : 64;
#pragma unroll 1
  for (int box = 0; box < kBoxes; ++box) {
    if (box >= kBuffers) boxes.template release<1, kBuffers - 1>();
    if (!boxes.await()) return false;
    const int begin = swap_ab || 64 * box + 64 <= columns ? 64 * box : columns - 64;  // as in store_sums()
    sender.carry(row, column + begin, kRows, boxes.box());
    boxes.advance();
  }
  boxes.template release < kBoxes<kBuffers ? kBoxes : kBuffers>();
  return true;
}

/// [warp] Sends all tiles of multiplier number `multiplier`. `swap_ab`: A is w, and boxes hold tiles transposed.
template <bool swap_ab, class Block, class Wait>
FARWARP_DEVICE void store_role(Call& call, const Args& args, const Block& block, int multiplier, Turns turns,
                               const Wait& wait) {
  using Tile = typename Block::Tile;
  Sender sender(call, args);
  BoxConsumer<typename Block::Boxes, Wait> boxes(block.boxes_of(multiplier), wait);
  for (int number = turns.first; number < args.grid.works(); number += turns.stride) {
    const Work work = farwarp::tile::work_at(args.grid, number);
    if (args.grid.splits > 1) {
      if (!boxes.await()) break;
      if (!boxes.carries()) {
        boxes.advance();
        boxes.template release<1>();
        continue;
      }
    }
    const int half = args.order.at(work.at.row) * Tile::kRows + 64 * multiplier;
    const int across = work.at.column * Tile::kColumns;
    const int row = swap_ab ? across : half, column = swap_ab ? half : across;
    sender.open(row, column, static_cast<std::uint32_t>(work.tile) + 1 == args.drop_put);
    if (!send_boxes<Tile::kColumns, swap_ab>(sender, boxes, row, column)) break;
    sender.signal();
  }
  if (lane_index() == 0) bulk_wait_all();  // also if a box was not filled
}

}  // namespace farwarp::FARWARP_TARGET::gemm_reduce
