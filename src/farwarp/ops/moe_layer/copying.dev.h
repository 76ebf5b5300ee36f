// Rows of x are copied to where their experts' rows lie: `x` of the workspace, tile after tile. They come from the
// caller's x, or from the inbox when they have arrived.
#pragma once

#include "farwarp/ops/moe_layer/routing.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

/// [warp] Copies `vectors` vectors. All loads of a batch are under way before its first store.
FARWARP_DEVICE void copy_row(Global<const Vec16> from, Global<Vec16> to, int vectors) {
  constexpr int kBatch = 8;
#pragma unroll 1
  for (int first = lane_index(); first < vectors; first += kBatch * Target::kWarpSize) {
    Vec16 values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int v = first + i * Target::kWarpSize;
      values[i] = load(from + (v < vectors ? v : first));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int v = first + i * Target::kWarpSize;
      if (v < vectors) store(to + v, values[i]);
    }
  }
}

/// [warp] Where the row `id` lies, once it is there; null if the call is over.
template <Failure failure>
FARWARP_DEVICE Global<const Vec16> await_row(Call& call, const Memory& memory, int id) {
  const Args& args = memory.args;
  const int source = args.by_max_tokens.quotient(id), token = id - source * args.max_tokens;
  if (source == args.view.rank)
    return Global<const Vec16>(static_cast<const Vec16*>(args.x)) + std::int64_t{token} * memory.row_vectors();
  std::uint32_t ignored = 0;
  if (lane_index() == 0)
    wait_tagged<failure>(call, mine(memory.row_flag(args.view.rank, source, token)), memory.epoch, ignored,
                         {.site = kSiteRow, .peer = source});
  call.live = ballot(!call.live) == 0;
  warp_sync();  // the other lanes read the row whose flag the first has acquired
  return Global<const Vec16>(call.live ? memory.row(args.view.rank, source, token).raw : nullptr);
}

/// [warp] Copies rows in turn with the other warps that copy; `warp` of `warps` in the grid. Tile after tile; or, with
/// few rows in a tile, the first row of all tiles, then the second, ...
template <int tile_rows, Failure failure>
FARWARP_DEVICE void copy_rows(Call& call, const Memory& memory, const ExpertTable<tile_rows>& table,
                              const CallSize& size, int warp, int warps) {
  constexpr bool kTileAfterTile = tile_rows > 64;
  wait_counted<failure>(call, memory.listed(), size.slices(), kSiteRowIds, kRoutingDepth);
  const int tiles = table.tiles(), items = tiles * tile_rows;
#pragma unroll 1
  for (int item = warp; item < items; item += warps) {
    const int row = kTileAfterTile ? item % tile_rows : item / tiles;
    const Work tile = table.work(kTileAfterTile ? item / tile_rows : item - row * tiles, 1);
    if (row >= tile.rows) continue;
    if (ballot(!call.live) != 0) return;
    const int place = tile.tile * tile_rows + row;
    const Global<const Vec16> from = await_row<failure>(call, memory, load(memory.row_ids() + place));
    if (!from) return;
    copy_row(from, memory.x_or_y(place), memory.row_vectors());
    drain_stores();
    warp_sync();
    if (lane_index() == 0) count_part(memory.x_stored(tile.tile), memory.x_parts());
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe_layer
