// Where each group's rows lie, and which tile a block computes. The host does not know the groups' rows: each block
// reads them when the kernel begins, and adds up the tiles.
#pragma once

#include "farwarp/ops/grouped_gemm/args.h"
#include "farwarp/substrate/device.h"
#include "farwarp/tile/gemm/group_tiles.dev.h"

namespace farwarp::FARWARP_TARGET::grouped_gemm {

using namespace farwarp::grouped_gemm;

/// Rows of x, and of y.
struct RowRange {
  int begin = 0, end = 0;
};

/// A number in device memory that is not allowed.
struct BadRows {
  int group = kMostGroups;  ///< it stands there: none
  std::uint64_t allowed = 0, found = 0;
};

/// [thread] The rows of a group; none if they are not allowed, which `bad` then says.
FARWARP_DEVICE RowRange rows_of(const Args& args, int group, BadRows& bad) {
  const Global<const std::int32_t> rows(args.rows);
  if (args.masked != 0) {
    const int count = load(rows + group), begin = group * args.max_rows;
    if (count >= 0 && count <= args.max_rows) return {begin, begin + count};
    bad = {group, static_cast<std::uint64_t>(args.max_rows), static_cast<std::uint64_t>(std::int64_t{count})};
    return {};
  }
  const int begin = load(rows + group), end = load(rows + group + 1);
  if (begin >= 0 && begin <= end && end <= args.max_rows) return {begin, end};
  const int wrong = begin < 0 || begin > args.max_rows ? begin : end;
  bad = {group, static_cast<std::uint64_t>(args.max_rows), static_cast<std::uint64_t>(std::int64_t{wrong})};
  return {};
}

/// A tile of y.
struct Work {
  int group;
  RowRange rows;  ///< of the group, from the tile's first on
  int column;     ///< number of the tile's columns
};

/// `tile_rows`: rows of a tile.
template <int tile_rows>
class GroupTable {
 public:
  /// `memory`: shared, 4 bytes for each group.
  FARWARP_DEVICE GroupTable(Shared<std::byte> memory, const Args& args) : tiles_(memory, args.groups) {}

  /// [warp] A block_sync() must follow. Lanes return the first that they found wrong. Then there are no works, in any
  /// block: rows of groups may overlap.
  FARWARP_DEVICE BadRows build(const Args& args) const {
    BadRows bad;
    tiles_.build([&](int group) {
      BadRows found;
      const RowRange rows = rows_of(args, group, found);
      if (bad.group == kMostGroups) bad = found;
      return (rows.end - rows.begin + tile_rows - 1) / tile_rows;
    });
    warp_sync();
    if (ballot(bad.group != kMostGroups) != 0 && lane_index() == 0) tiles_.clear();
    return bad;
  }

  /// [thread] How many tiles y has.
  FARWARP_DEVICE int works(const Args& args) const { return tiles_.count() * args.column_tiles; }

  /// [thread] Work `number`: groups in their order, of a group a column of tiles after the other, so that blocks that
  /// run side by side read the same rows of w.
  FARWARP_DEVICE Work work(const Args& args, int number) const {
    const int group = tiles_.group_of(number / args.column_tiles), before = tiles_.before(group);
    const int tiles = tiles_.through(group) - before, in_group = number - before * args.column_tiles;
    BadRows bad;
    RowRange rows = rows_of(args, group, bad);
    rows.begin += in_group % tiles * tile_rows;
    return {group, rows, in_group / tiles};
  }

 private:
  tile::GroupTiles tiles_;
};

}  // namespace farwarp::FARWARP_TARGET::grouped_gemm
