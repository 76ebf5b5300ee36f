// The Hopper main loop's loading role: one thread that copies the operands of all the block's work into the ring.
#pragma once

#include "farwarp/tile/gemm/block_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

/// [thread] Starts the block's first copies, of `most` steps, and returns of how many. `load(work, step, stage)` starts
/// those of one step of a work into a free stage.
template <class Tile, int most = Tile::kStages, class Load>
FARWARP_DEVICE int load_first(const TileGrid& grid, Turns turns, const Load& load) {
  const Work work = farwarp::tile::work_at(grid, turns.first);
  const int count = work.steps.count < most ? work.steps.count : most;
  for (int i = 0; i < count; ++i) load(work, i, i);
  return count;
}

/// [thread] Copies the operands of all the block's tiles but for the `loaded` first steps, as far ahead as there are stages, and
/// returns when the last of them has been multiplied.
template <class Tile, class Load, class Wait>
FARWARP_DEVICE void load_role(const Tile& tile, const TileGrid& grid, Turns turns, int loaded, const Load& load,
                              const Wait& wait) {
  RingPosition<Tile::kStages> at, last;
  for (int i = 0; i < loaded; ++i) {
    last = at;
    at.advance();
  }
  for (int number = turns.first; number < grid.works(); number += turns.stride) {
    const Work work = farwarp::tile::work_at(grid, number);
    for (int i = loaded; i < work.steps.count; ++i) {
      if (!wait(tile.ring.empty(at.stage), at.parity ^ 1)) return;  // the first turn finds every stage empty
      load(work, i, at.stage);
      last = at;
      at.advance();
    }
    loaded = 0;
  }
  wait(tile.ring.empty(last.stage), last.parity);
}

}  // namespace farwarp::FARWARP_TARGET::tile
