#include "product_accesses.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/fleet/layout.h"

namespace farwarp::cli {
namespace {

using fleet::Share;
using fleet::share_of;

constexpr int kElementBytes = 2;
constexpr int kMaxRows = 1 << 22;
constexpr int kMSplitGroups = 4;  ///< shares of rows that an m_split on eight XCDs has

int tiles(int rows, int tile) { return (rows + tile - 1) / tile; }
int rows_of(int rows, int tile, int number) { return std::min(tile, rows - number * tile); }

/// How many of `total` tiles that all workers of an XCD take in turn worker `number` has.
int in_turn(int total, int workers, int number) { return (total - number + workers - 1) / workers; }

}  // namespace

Status check(const ProductShape& shape) {
  const struct {
    const char* name;
    int value, low, high;
  } limits[] = {{"sequences", shape.sequences, 1, 1 << 16},
                {"rows", shape.rows, 1, kMaxRows},
                {"columns", shape.columns, 1, kMaxRows},
                {"tile_rows", shape.tile_rows, 1, kMaxRows},
                {"tile_sequences", shape.tile_sequences, 1, kMaxRows},
                {"step_columns", shape.step_columns, 1, 1 << 16},
                {"window", shape.window, 0, 1 << 16},
                {"xcds", shape.xcds, 1, 64},
                {"workers_per_xcd", shape.workers_per_xcd, 1, 1024}};
  for (const auto& limit : limits) {
    if (limit.value < limit.low || limit.value > limit.high)
      return invalid_argument(
          fmt::format("{} is {}: allowed is {}..{}", limit.name, limit.value, limit.low, limit.high));
  }
  return {};
}

ProductAccesses::ProductAccesses(const ProductShape& shape, Traversal traversal)
    : shape_(shape), traversal_(traversal) {
  if (traversal == Traversal::kWhole) {
    shape_.tile_rows = fleet::kTileRows;
    shape_.tile_sequences = shape.sequences;
  }
  row_tiles_ = tiles(shape_.rows, shape_.tile_rows);
  sequence_tiles_ = tiles(shape_.sequences, shape_.tile_sequences);
  steps_ = tiles(shape_.columns, shape_.step_columns);
}

std::int64_t ProductAccesses::workgroups() const { return std::int64_t{shape_.xcds} * shape_.workers_per_xcd; }

int ProductAccesses::tiles_of(std::int64_t worker) const {
  const int xcd = static_cast<int>(worker % shape_.xcds), number = static_cast<int>(worker / shape_.xcds);
  switch (traversal_) {
    case Traversal::kWhole: return share_of(row_tiles_, static_cast<int>(workgroups()), static_cast<int>(worker)).count;
    case Traversal::kMSplit: {
      const int groups = std::min(kMSplitGroups, shape_.xcds);
      const int rows = share_of(row_tiles_, groups, xcd % groups).count;
      const int sequences = share_of(sequence_tiles_, tiles(shape_.xcds, groups), xcd / groups).count;
      return in_turn(rows * sequences, shape_.workers_per_xcd, number);
    }
    default:
      return in_turn(share_of(row_tiles_, shape_.xcds, xcd).count * sequence_tiles_, shape_.workers_per_xcd, number);
  }
}

ProductAccesses::Place ProductAccesses::place(std::int64_t worker, int tile) const {
  const int xcd = static_cast<int>(worker % shape_.xcds), number = static_cast<int>(worker / shape_.xcds);
  const int i = number + tile * shape_.workers_per_xcd;
  switch (traversal_) {
    case Traversal::kWhole:
      return {share_of(row_tiles_, static_cast<int>(workgroups()), static_cast<int>(worker)).first + tile, 0};
    case Traversal::kMSplit: {
      const int groups = std::min(kMSplitGroups, shape_.xcds);
      const Share rows = share_of(row_tiles_, groups, xcd % groups);
      const Share sequences = share_of(sequence_tiles_, tiles(shape_.xcds, groups), xcd / groups);
      return {rows.first + i % rows.count, sequences.first + i / rows.count};
    }
    case Traversal::kNFirst: {
      const Share rows = share_of(row_tiles_, shape_.xcds, xcd);
      return {rows.first + i % rows.count, i / rows.count};
    }
    case Traversal::kMWindow: break;
  }
  // Windows of sequences one after the other; in a window, all its sequences of a tile of rows, then those of the next
  // tile.
  const Share rows = share_of(row_tiles_, shape_.xcds, xcd);
  const int window = shape_.window == 0 ? sequence_tiles_ : std::min(shape_.window, sequence_tiles_);
  const int begin = i / (window * rows.count) * window;
  const int width = std::min(window, sequence_tiles_ - begin);
  const int in_window = i % (window * rows.count);
  return {rows.first + in_window / width, begin + in_window % width};
}

std::int64_t ProductAccesses::accesses(std::int64_t worker) const {
  const std::int64_t count = tiles_of(worker);
  if (traversal_ != Traversal::kWhole) return count * (2 * steps_ + 1);
  return count == 0 ? 0 : count * (steps_ + 1) + steps_;
}

ProductAccesses::Which ProductAccesses::which(std::int64_t access) const {
  const int with_activations = 2 * steps_ + 1, without = steps_ + 1;
  const bool first = access < with_activations;  // kWhole: of the first tile
  const bool both = traversal_ != Traversal::kWhole || first;
  const auto of_tile = both ? with_activations : without;
  const std::int64_t begin = both ? 0 : with_activations;
  const auto tile = static_cast<int>((access - begin) / of_tile) + (both ? 0 : 1);
  const auto number = static_cast<int>((access - begin) % of_tile);
  if (number == of_tile - 1) return {tile, 0, Kind::kResult};
  if (!both) return {tile, number, Kind::kWeights};
  return {tile, number / 2, number % 2 == 0 ? Kind::kActivations : Kind::kWeights};
}

void ProductAccesses::read(std::int64_t worker, std::int64_t first, std::span<TileAccess> out) const {
  const auto activations = static_cast<std::uint32_t>(row_tiles_);
  const auto results = activations + static_cast<std::uint32_t>(sequence_tiles_);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Which access = which(first + static_cast<std::int64_t>(i));
    const Place where = place(worker, access.tile);
    const int rows = rows_of(shape_.rows, shape_.tile_rows, where.rows);
    const int sequences = rows_of(shape_.sequences, shape_.tile_sequences, where.sequences);
    const int columns = rows_of(shape_.columns, shape_.step_columns, access.step);
    const auto row_tile = static_cast<std::uint32_t>(where.rows),
               sequence_tile = static_cast<std::uint32_t>(where.sequences),
               step = static_cast<std::uint32_t>(access.step);
    const int whole_step = shape_.step_columns * kElementBytes;
    switch (access.kind) {
      case Kind::kActivations:
        out[i] = {.object = activations + sequence_tile,
                  .tile = step,
                  .bytes = sequences * columns * kElementBytes,
                  .pitch = shape_.tile_sequences * whole_step};
        break;
      case Kind::kWeights:
        out[i] = {.object = row_tile,
                  .tile = step,
                  .bytes = rows * columns * kElementBytes,
                  .pitch = shape_.tile_rows * whole_step,
                  .flops = 2.0 * rows * sequences * columns};
        break;
      case Kind::kResult:
        out[i] = {.object = results + sequence_tile,
                  .tile = row_tile,
                  .bytes = rows * sequences * kElementBytes,
                  .pitch = shape_.tile_rows * shape_.tile_sequences * kElementBytes,
                  .write = true};
    }
  }
}

std::int64_t ProductAccesses::tile_bytes() const {
  return std::int64_t{std::max(shape_.tile_rows, shape_.tile_sequences)} * shape_.step_columns * kElementBytes;
}

}  // namespace farwarp::cli
