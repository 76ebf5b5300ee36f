// Groups of rows, and how many tiles each group has: a block adds them up in shared memory, and finds the group of a
// tile.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

class GroupTiles {
 public:
  /// `memory`: shared, 4 bytes for each group.
  FARWARP_DEVICE GroupTiles(Shared<std::byte> memory, int groups)
      : through_(reinterpret_cast<std::int32_t*>(memory.raw)), groups_(groups) {}

  /// [warp] `tiles_of(group)`: [thread] tiles of a group. A block_sync() must follow.
  template <class TilesOf>
  FARWARP_DEVICE void build(const TilesOf& tiles_of) const {
    int before = 0;
    for (int first = 0; first < groups_; first += Target::kWarpSize) {
      const int group = first + lane_index();
      int tiles = group < groups_ ? tiles_of(group) : 0;
#pragma unroll
      for (int distance = 1; distance < Target::kWarpSize; distance *= 2) {
        const int other = shuffle(tiles, (lane_index() - distance) & (Target::kWarpSize - 1));
        if (lane_index() >= distance) tiles += other;
      }
      tiles += before;
      if (group < groups_) store(through_ + group, tiles);
      before = shuffle(tiles, Target::kWarpSize - 1);
    }
  }
  /// [thread] Afterwards there are no tiles. In the warp that has built, after a warp_sync().
  FARWARP_DEVICE void clear() const { store(through_ + (groups_ - 1), 0); }

  /// [thread] Tiles of all groups.
  FARWARP_DEVICE int count() const { return load(through_ + (groups_ - 1)); }
  /// [thread] Tiles of the groups before `group`.
  FARWARP_DEVICE int before(int group) const { return group == 0 ? 0 : load(through_ + (group - 1)); }
  /// [thread] Tiles of the groups up to `group`.
  FARWARP_DEVICE int through(int group) const { return load(through_ + group); }
  /// [thread] The group that has tile number `tile` of all.
  FARWARP_DEVICE int group_of(int tile) const {
    int group = 0, past = groups_ - 1;  // the first group whose tiles end after `tile`
    while (group < past) {
      const int middle = (group + past) / 2;
      if (load(through_ + middle) > tile) {
        past = middle;
      } else {
        group = middle + 1;
      }
    }
    return group;
  }

 private:
  Shared<std::int32_t> through_;
  int groups_;
};

}  // namespace farwarp::FARWARP_TARGET::tile
