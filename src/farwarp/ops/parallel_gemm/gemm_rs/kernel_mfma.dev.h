// gemm-rs on CDNA: gemm's blocks, which store what they have summed into its owners' memory, and then reduce, each wave for itself.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/reduce.dev.h"
#include "farwarp/tile/gemm/epilogue_mfma.dev.h"
#include "farwarp/tile/gemm/feed_mfma.dev.h"
#include "farwarp/tile/gemm/split.dev.h"
#include "farwarp/world/device/signal.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::tile::Work;

/// What the tiles' feed asks.
template <class T>
struct Product {
  const Args& args;

  FARWARP_DEVICE tile::Operand<T> x() const { return {static_cast<const T*>(args.x), args.k, args.m}; }
  FARWARP_DEVICE tile::Operand<T> w() const { return {static_cast<const T*>(args.w), args.k, args.n}; }
  FARWARP_DEVICE int depth() const { return args.k; }
  FARWARP_DEVICE int works() const { return args.grid.works(); }
  FARWARP_DEVICE Work work(int turn) const {
    Work work = tile::work_in_turn(args.grid, args.xcds, turn);
    work.at.row = uniform(args.order.at(work.at.row));
    return work;
  }
};

/// [block] Stores the tile at (row, column) of the whole sum into its owners' inboxes and tells them. `dropped`: tells them only.
template <class Tile>
FARWARP_DEVICE void send_tile(Call& call, const Args& args, Permissions& permissions, int row, int column,
                              bool dropped, const float (&sums)[Tile::kSums]) {
  using T = typename Tile::Element;
  const Bands& bands = args.bands;
  const OwnerRange owners = bands.owners_of(row);
  if (thread_index() == 0) permissions.await<Failure::called>(call, args, owners);
  if (block_any(!call.live)) return;
  const tile::Extent<T> extent{dropped ? 0 : args.m, args.n, Global<const T>(static_cast<const T*>(args.bias))};
  const std::int64_t mine = std::int64_t{args.view.rank} * bands.owned;  // rows of every inbox
  tile::round_sums<Tile>(extent, row, column, sums, [&](int to, int at, Vec16 eight) {
    const int owner = to / bands.owned;
    const std::int64_t place = (mine + to - owner * bands.owned) * args.n + at;
    store(peer_address<Vec16>(args.view, owner, args.at.inbox + place * static_cast<std::int64_t>(sizeof(T))), eight);
  });
  signal_after_block(
      owners.last - owners.first + 1, [&](int i) { return flag_at(args, owners.first + i, row, column); },
      [&](int) { return tagged(call.epoch, 0); });
}

/// [block] Multiplies and sends the block's tiles.
template <class Tile>
FARWARP_DEVICE void multiply_and_send(Call& call, const Args& args, const Tile& tile) {
  using T = typename Tile::Element;
  if (block_index() >= args.grid.works()) return;
  const Shared<std::uint32_t> last_word(reinterpret_cast<std::uint32_t*>((tile.memory + Tile::kShape.last_word()).raw));
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.at.partials),
                               own_address<std::uint32_t>(args.view, args.at.counters), args.grid.splits, call.epoch};
  const auto meet = [] { block_sync(); };
  const Product<T> product{args};
  tile::Feed<Tile, Product<T>> feed(product);
  tile::MfmaPipeline<Tile> pipeline{tile, {}, {}};
  pipeline.start(feed);
  Permissions permissions;
  for (int turn = block_index(); turn < args.grid.works(); turn += num_blocks()) {
    const Work work = product.work(turn);
    float sums[Tile::kSums] = {};
    for (int step = 0; step < work.steps.count; ++step) pipeline.step(feed, sums);
    const tile::SplitPart part{work.tile, work.split, thread_index(), last_word};
    if (args.grid.splits == 1 || tile::sum_splits<Tile::kThreads>(space, part, meet, sums, sums)) {
      send_tile<Tile>(call, args, permissions, work.at.row * Tile::kRows, work.at.column * Tile::kColumns,
                      static_cast<std::uint32_t>(work.tile) + 1 == args.drop_tile, sums);
    }
  }
}

template <class T, tile::MfmaShape shape>
FARWARP_DEVICE void gemm_rs_mfma(const Args& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  if (block_index() == 0 && warp_index() == 0) announce_entry(call, args.at.entries);
  multiply_and_send(call, args, tile::MfmaTile<T, shape>{block_shared()});
  constexpr int kWave = Target::kWarpSize;
  constexpr int kWaves = shape.threads() / kWave;
  const Reducers mine{kWaves * block_index() + warp_index(), kWaves * num_blocks(), lane_index(), kWave};
  reduce_role<T, shape.columns, Failure::called>(call, args, mine, [] { warp_sync(); });
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
