// gemm-rs on Hopper: gemm's blocks, whose two multiplying warpgroups send what they have summed to its owners, and then reduce.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/reduce.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/loader_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// A warpgroup's way to the owners: a box goes to one by a tensor copy; rows of several go by the threads' own stores, because a copy
/// out of the middle of a swizzled box is none.
class Sender {
 public:
  /// `permitted`: a word of the warpgroup's.
  FARWARP_DEVICE Sender(Call& call, const Args& args, Shared<std::uint32_t> permitted)
      : call_(call), args_(args), permitted_(permitted) {}

  /// [warpgroup] Before the first box of the band that begins at (row, column) of the whole sum, which may lie outside: tells of the
  /// band before it, whose copies had a tile's time to arrive, and gets permission for this one, which the box's barriers hand on.
  /// `dropped`: told of, but not sent.
  FARWARP_DEVICE void open(int row, int column, bool dropped) {
    if (tile::leads_warpgroup()) tell();
    const bool inside = row < args_.m && column < args_.n;
    owners_ = inside ? args_.bands.owners_of(row) : kNobody;
    row_ = row;
    column_ = column;
    dropped_ = dropped || !inside;
    if (!tile::leads_warpgroup()) return;
    const bool permitted = permissions_.await<Failure::in_place>(call_, args_, owners_);
    store(permitted_, permitted ? 1u : 0u);
  }

  /// [warpgroup] Sends a box of `rows` x 64 of the band.
  FARWARP_DEVICE void carry(int row, int column, int rows, Shared<std::byte> box) const {
    if (dropped_ || load(permitted_) == 0) return;  // without its owner's permission, memory may still be in use
    if (owners_.first == owners_.last) {
      tile::carry_to(args_.inbox[owners_.first], row - owners_.first * args_.bands.owned, column, box);
    } else {
      store_rows(row, column, rows, box);
    }
  }

  /// [thread] The leader, behind a barrier of the warpgroup: once the open band has arrived as a whole, its flags.
  FARWARP_DEVICE void tell() {
    bulk_wait_all();
    if (owners_.first > owners_.last || !call_.live) return;
    fence<Order::release, Scope::system>();
    for (int owner = owners_.first; owner <= owners_.last; ++owner)
      store<Order::relaxed>(flag_at(args_, owner, row_, column_), tagged(call_.epoch, 0));
    owners_ = kNobody;
  }

 private:
  static constexpr OwnerRange kNobody{0, -1};

  /// [warpgroup] 16 bytes a thread.
  FARWARP_DEVICE void store_rows(int row, int column, int rows, Shared<std::byte> box) const {
    const Bands& bands = args_.bands;
    for (int i = thread_index() % 128; i < rows * 8; i += 128) {
      const int in_box = i / 8, to = column + i % 8 * 8, at = row + in_box;
      if (at >= args_.m || to >= args_.n) continue;
      const int owner = at / bands.owned;
      const std::int64_t place = std::int64_t{args_.view.rank} * bands.owned + at - owner * bands.owned;
      const Shared<std::byte> from = box + swizzled_offset(in_box, i % 8 * 16);
      store(peer_address<Vec16>(args_.view, owner, args_.at.inbox + (place * args_.n + to) * 2),
            load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(from.raw))));
    }
  }

  Call& call_;
  const Args& args_;
  Shared<std::uint32_t> permitted_;
  Permissions permissions_;      ///< the leader's
  OwnerRange owners_ = kNobody;  ///< of the open band
  int row_ = 0, column_ = 0;
  bool dropped_ = false;
};

/// [warpgroup] Multiplies 64 rows of each tile and sends them. `swapped`: A is w, and the tile is stored transposed.
template <bool swapped, class Block, class To, class Wait>
FARWARP_DEVICE void multiply_and_send(const Call& call, const Args& args, const Block& block, int multiplier,
                                      Turns turns, To& sender, const Wait& wait) {
  using Tile = typename Block::Tile;
  using T = typename Tile::Element;
  tile::BoxWriter<Block::kBuffers> writer(block.boxes(multiplier), 1 + multiplier);
  const Global<const T> bias(static_cast<const T*>(args.bias));
  const auto carry = [&](int row, int column, Shared<std::byte> box) {
    sender.carry(row, column, swapped ? Tile::kColumns : 64, box);
  };
  const auto send_tile = [&](const Work& work, const float(&values)[Tile::kSums]) {
    const int row = args.order.at(work.at.row) * Tile::kRows, column = work.at.column * Tile::kColumns;
    const int half = row + 64 * multiplier;
    group_sync(1 + multiplier, 128);  // all have stored their part of the band before
    sender.open(swapped ? column : half, swapped ? half : column,
                static_cast<std::uint32_t>(work.tile) + 1 == args.drop_tile);
    tile::store_half_tile<Tile, swapped>(writer, carry, multiplier, row, column, bias, args.n, values);
  };
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.at.partials),
                               own_address<std::uint32_t>(args.view, args.at.counters), args.grid.splits, call.epoch};
  tile::multiply_role(block.tile(), multiplier, args.grid, turns, space, block.last_word(multiplier), wait, send_tile);
  group_sync(1 + multiplier, 128);
  if (tile::leads_warpgroup()) sender.tell();
}

/// [block] A block: the loader, and `role(call, block, multiplier, turns, wait)` for each multiplying warpgroup.
template <class T, int columns, bool swapped, class Role>
FARWARP_DEVICE void run_block(const Args& args, const Role& role) {
  using Block = tile::WgmmaBlock<T, columns>;
  const Block block{block_shared()};
  using Tile = typename Block::Tile;
  const Tile tile = block.tile();
  const auto load = [&](const Work& work, int step, int stage) {
    tile::load_step(tile, args.a, args.b, args.order.at(work.at.row) * Tile::kRows, work.at.column * Tile::kColumns,
                    work.steps.first + step, stage);
  };
  const Turns turns{block_index(), num_blocks()};
  int loaded = 0;
  if (thread_index() == 0) {
    block.initialise();
    loaded = tile::load_first<Tile>(args.grid, turns, load);  // under way while join_call() reads its cells
  }
  Call call = join_call(args.view, args.slot);  // its barrier shows the ring to all
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(call, barrier, parity, farwarp::gemm_rs::kSiteStage);
  };
  if (!call.live) {
    for (int stage = 0; stage < loaded; ++stage) wait(tile.ring.full(stage), 0);  // copies must not outlive the block
    return;
  }
  const int warpgroup = thread_index() / 128;
  if (warpgroup == 0) {
    reduce_registers<40>();
    if (block_index() == 0 && warp_index() == 1) announce_entry(call, args.at.entries);
    if (warp_index() != 0) return;
    if (thread_index() == 0) {
      if (block_index() == 0) claim_call(call);
      tile::load_role(tile, args.grid, turns, loaded, load, wait);
      wait(block.meeting(), 0);  // nobody of the block uses the call's memory any more
      leave_call(call, 0);
    }
  } else {
    raise_registers<232>();
    role(call, block, warpgroup - 1, turns, wait);
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(block.meeting());
  }
}

template <class T, int columns, bool swapped>
FARWARP_DEVICE void gemm_rs_wgmma(const Args& args) {
  run_block<T, columns, swapped>(
      args, [&](Call& call, const auto& block, int multiplier, Turns turns, const auto& wait) {
        Sender sender(call, args, block.leader_word(multiplier));
        multiply_and_send<swapped>(call, args, block, multiplier, turns, sender, wait);
        const Reducers mine{2 * block_index() + multiplier, 2 * num_blocks(), thread_index() % 128, 128};
        reduce_into_y<T, swapped ? 64 : columns, Failure::in_place>(call, args, mine,
                                                                    [&] { group_sync(1 + multiplier, 128); });
      });
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
