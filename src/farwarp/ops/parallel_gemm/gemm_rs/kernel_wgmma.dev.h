// gemm-rs on Hopper: gemm's blocks, whose two multiplying warpgroups send what they have summed to its owners, and then reduce.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/reduce.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/loader_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// A warpgroup's way to the owners, by tensor copies of its first thread. Everything here is that thread's.
class Sender {
 public:
  FARWARP_DEVICE Sender(Call& call, const Args& args) : call_(call), args_(args) {}

  /// [thread] Before the first box of the band that begins at (row, column) of the whole sum, which may lie outside: tells of the band
  /// before it, whose copies had a tile's time to arrive, and gets permission for this one. `dropped`: told of, but not sent.
  FARWARP_DEVICE void open(int row, int column, bool dropped) {
    tell();
    if (row >= args_.m || column >= args_.n) return;
    const OwnerRange owners = args_.bands.owners_of(row);
    if (!permissions_.await<Failure::in_place>(call_, args_, owners)) return;
    owners_ = owners;
    row_ = row;
    column_ = column;
    dropped_ = dropped;
  }

  /// [thread] Starts a copy of the box to each owner of some of its rows. The tensor unit drops what lies outside of an owner's.
  FARWARP_DEVICE void carry(int row, int column, Shared<std::byte> box) const {
    if (dropped_) return;
    for (int owner = owners_.first; owner <= owners_.last; ++owner)
      tensor_store(args_.inbox[owner], row - owner * args_.bands.owned, column, box);
  }

  /// [thread] Once the open band has arrived as a whole, its flags.
  FARWARP_DEVICE void tell() {
    bulk_wait_all();
    if (owners_.first > owners_.last) return;
    fence<Order::release, Scope::system>();
    for (int owner = owners_.first; owner <= owners_.last; ++owner)
      store<Order::relaxed>(flag_at(args_, owner, row_, column_), tagged(call_.epoch, 0));
    owners_ = kNobody;
  }

 private:
  static constexpr OwnerRange kNobody{0, -1};

  Call& call_;
  const Args& args_;
  Permissions permissions_;
  OwnerRange owners_ = kNobody;  ///< of the open band
  int row_ = 0, column_ = 0;
  bool dropped_ = false;
};

/// [warpgroup] Multiplies 64 rows of each tile and sends them. `swapped`: A is w, and the tile is stored transposed.
template <bool swapped, class Block, class Wait>
FARWARP_DEVICE void multiply_and_send(Call& call, const Args& args, const Block& block, int multiplier, Turns turns,
                                      const Wait& wait) {
  using Tile = typename Block::Tile;
  using T = typename Tile::Element;
  const bool leads = thread_index() % 128 == 0;
  tile::BoxWriter writer(block.boxes(multiplier), 1 + multiplier);
  Sender sender(call, args);
  const Global<const T> bias(static_cast<const T*>(args.bias));
  const auto carry = [&](int row, int column, Shared<std::byte> box) { sender.carry(row, column, box); };
  const auto send_tile = [&](const Work& work, const float(&values)[Tile::kSums]) {
    const int row = args.order.at(work.at.row) * Tile::kRows, column = work.at.column * Tile::kColumns;
    const int half = row + 64 * multiplier;
    if (leads)
      sender.open(swapped ? column : half, swapped ? half : column,
                  static_cast<std::uint32_t>(work.tile) + 1 == args.drop_tile);
    tile::store_half_tile<Tile, swapped>(writer, carry, multiplier, row, column, bias, args.n, values);
  };
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.at.partials),
                               own_address<std::uint32_t>(args.view, args.at.counters), args.grid.splits, call.epoch};
  tile::multiply_role(block.tile(), multiplier, args.grid, turns, space, block.last_word(multiplier), wait, send_tile);
  if (leads) sender.tell();
}

/// The numbered barrier of all who use the call's cells, before the block leaves it: the multipliers and the loader's warp.
inline constexpr int kLeaving = 3;
inline constexpr int kLeavers = 256 + 32;

template <class T, int columns, bool swapped>
FARWARP_DEVICE void gemm_rs_wgmma(const Args& args) {
  const tile::WgmmaBlock<T, columns> block{block_shared()};
  using Tile = typename tile::WgmmaBlock<T, columns>::Tile;
  const Tile tile = block.tile();
  const auto load = [&](const Work& work, int step, int stage) {
    tile::load_step(tile, args.a, args.b, args.order.at(work.at.row) * Tile::kRows, work.at.column * Tile::kColumns,
                    work.steps.first + step, stage);
  };
  const Turns turns{block_index(), num_blocks()};
  int loaded = 0;
  if (thread_index() == 0) {
    tile.ring.initialise(Tile::kReadingWarps);
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
    }
    warp_sync();
    group_sync(kLeaving, kLeavers);
    if (thread_index() == 0) leave_call(call, 0);
  } else {
    raise_registers<232>();
    const int multiplier = warpgroup - 1;
    multiply_and_send<swapped>(call, args, block, multiplier, turns, wait);
    const Reducers mine{2 * block_index() + multiplier, 2 * num_blocks(), thread_index() % 128, 128};
    reduce_role<T, swapped ? 64 : columns, Failure::in_place>(call, args, mine,
                                                              [&] { group_sync(1 + multiplier, 128); });
    group_sync(kLeaving, kLeavers);
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
