// gemm-rs and gemm-ar on CDNA: gemm's blocks, whose threads store their sums into the owners' inboxes.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/exchange.dev.h"
#include "farwarp/tile/gemm/block_mfma.dev.h"
#include "farwarp/tile/gemm/epilogue_mfma.dev.h"
#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_reduce {

using farwarp::tile::Work;

template <class Tile>
struct Operands {
  using T = typename Tile::Element;
  const Args& args;

  FARWARP_DEVICE void open(const Work& work, tile::TileSource<Tile>& source) const {
    // A tile that has only padding reads the last row of x again; its sums are not used.
    const int row = args.order.at(work.at.row) * Tile::kRows;
    source.open({static_cast<const T*>(args.x), args.k, args.x_rows}, {static_cast<const T*>(args.w), args.k, args.n},
                row < args.x_rows ? row : args.x_rows - 1, work.at.column * Tile::kColumns);
  }
  FARWARP_DEVICE void need(const Work&, int) const {}
};

/// [block] Stores the tile at (row, column) of the whole sum into its owners' inboxes and signals them. `dropped`: only
/// signals.
template <class Tile>
FARWARP_DEVICE void send_tile(Call& call, const Args& args, Permissions& permissions, int row, int column, bool dropped,
                              const float (&sums)[Tile::kSums]) {
  using T = typename Tile::Element;
  const Bands& bands = args.bands;
  const OwnerRange owners = bands.owners_of(row);
  if (thread_index() == 0) permissions.await<Failure::called>(call, args, owners);
  if (block_any(!call.live)) return;
  const tile::Extent<T> extent{dropped ? 0 : args.m, args.n, Global<const T>(static_cast<const T*>(args.bias))};
  const std::int64_t mine = std::int64_t{args.view.rank} * bands.owned;  // first of this rank's rows in every inbox
  tile::round_sums<Tile>(extent, row, column, sums, [&](int to, int at, Vec16 eight) {
    const int owner = to / bands.owned;
    const std::int64_t place = (mine + to - owner * bands.owned) * args.n + at;
    store(peer_address<Vec16>(args.view, owner, args.offsets.inbox + place * static_cast<std::int64_t>(sizeof(T))),
          eight);
  });
  signal_after_block(
      owners.last - owners.first + 1, [&](int i) { return flag_at(args, owners.first + i, row, column); },
      [&](int) { return tagged(call.epoch, 0); });
}

/// [block] Multiplies the block's works; `finish(work, sums)` gets the sums of each.
template <class Tile, class Finish>
FARWARP_DEVICE void multiply_works(const Call& call, const Args& args, const Tile& tile, const Finish& finish) {
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.offsets.partials),
                               own_address<std::uint32_t>(args.view, args.offsets.counters), args.grid.splits,
                               call.epoch};
  const tile::BlockWork share{args.grid, {block_index(), num_blocks()}, args.xcds, args.k};
  tile::multiply_tiles(tile, share, space, Operands<Tile>{args}, finish);
}

/// [block] Multiplies and sends the block's tiles.
template <class Tile>
FARWARP_DEVICE void multiply_and_send(Call& call, const Args& args, const Tile& tile) {
  Permissions permissions;
  multiply_works(call, args, tile, [&](const Work& work, const float(&sums)[Tile::kSums]) {
    send_tile<Tile>(call, args, permissions, args.order.at(work.at.row) * Tile::kRows, work.at.column * Tile::kColumns,
                    static_cast<std::uint32_t>(work.tile) + 1 == args.drop_put, sums);
  });
}

}  // namespace farwarp::FARWARP_TARGET::gemm_reduce
