#include "farwarp/tile/gemm/tiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "farwarp/tile/gemm/shape_mfma.h"
#include "farwarp/tile/gemm/shape_wgmma.h"

namespace farwarp::tile {
namespace {

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct Choice {
  int columns = 0;
  int splits = 0;
  double clocks = 0;
};

/// Clocks of a launch, roughly: a step takes the matrix unit 4 clocks a column, or L2 the time for the tile's bytes; and all bytes
/// come from memory once. Fitted to one H200 (2026-11): 64 x 2304 x 7168 takes 24.2 us in 4 splits and 26.5 in 7, 512 x 1536 x
/// 4096 23.5 us in tiles of 96 columns in 2 splits and 28.8 in one.
double estimate(const TilingWish& wish, std::int64_t tiles, int splits, int columns, int steps) {
  constexpr double kL2BytesPerClock = 52;  // for each of 132 multiprocessors at once
  constexpr double kMemoryBytesPerClock = 2500;
  constexpr double kFill = 1500;  // until the first step's operands are there
  const double step = std::max(4.0 * columns, WgmmaShared::stage_bytes(columns) / kL2BytesPerClock);
  const double epilogue = 300 + 6.0 * columns;
  const double exchange = splits > 1 ? 1500 + columns * 8.0 * splits : 0;
  const auto rounds = static_cast<double>(ceil_div(tiles * splits, std::int64_t{wish.blocks}));
  const double operands = 2.0 * wish.k * (double{1} * wish.m + wish.n) / kMemoryBytesPerClock;
  return kFill + exchange + std::max(operands, rounds * ceil_div(steps, splits) * step) + rounds * epilogue;
}

Choice best_choice(std::span<const int> widths, const TilingWish& wish, int tile_rows, int columns_in_all) {
  const int steps = ceil_div(wish.k, kWgmmaDepth);
  Choice best;
  for (const int columns : widths) {
    if (wish.columns != 0 && wish.columns != columns) continue;
    const std::int64_t tiles = std::int64_t{tile_rows} * ceil_div(columns_in_all, columns);
    const int most = columns <= kMostSplitColumns ? std::min(kMostSplits, steps) : 1;
    for (int splits = 1; splits <= most; ++splits) {
      if (wish.splits != 0 && wish.splits != splits) continue;
      if (wish.splits == 0 && splits > 1 && tiles * splits > wish.blocks) break;
      const double clocks = estimate(wish, tiles, splits, columns, steps);
      if (best.columns == 0 || clocks < best.clocks) best = {columns, splits, clocks};
    }
  }
  return best;
}

std::string list(std::span<const int> values) { return fmt::format("{}", fmt::join(values, ", ")); }

Status wrong(const char* desc, const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("{}.{} is {}; allowed: {}", desc, field, value, allowed));
}

Status tile_wgmma(const TilingWish& wish, const char* desc, Tiling& result) {
  result.few_rows = wish.m <= 64;
  result.rows = kWgmmaRows;
  result.depth = kWgmmaDepth;
  result.steps = ceil_div(wish.k, kWgmmaDepth);
  const int row_count = result.few_rows ? wish.n : wish.m;
  const int column_count = result.few_rows ? wish.m : wish.n;
  std::span<const int> widths = wish.widths;
  if (result.few_rows) {  // all rows of x in one tile: w is read once
    widths = kFewWidths;
    while (widths.size() > 1 && widths[0] < wish.m && wish.columns == 0) widths = widths.subspan(1);
    if (wish.columns == 0) widths = widths.first(1);
  }
  result.tile_rows = ceil_div(row_count, result.rows);
  const Choice choice = best_choice(widths, wish, result.tile_rows, column_count);
  if (choice.columns == 0) {
    if (std::find(widths.begin(), widths.end(), wish.columns) == widths.end() && wish.columns != 0)
      return wrong(desc, "tile_columns", wish.columns,
                   fmt::format("0 (the plan's choice), {} with m = {}", list(widths), wish.m));
    return wrong(desc, "splits", wish.splits,
                 fmt::format("1 to {} steps of {}, with tile_columns up to {}", std::min(kMostSplits, result.steps),
                             kWgmmaDepth, kMostSplitColumns));
  }
  result.columns = choice.columns;
  result.splits = choice.splits;
  result.tile_columns = ceil_div(column_count, result.columns);
  result.threads = kWgmmaThreads;
  result.shared_bytes = WgmmaShared::total(result.columns);
  result.why = fmt::format("{} tiles of {} x {} in {} split{} on {} multiprocessors, about {:.0f} clocks",
                           result.tiles(), result.rows, result.columns, result.splits, result.splits == 1 ? "" : "s",
                           wish.blocks, choice.clocks);
  return {};
}

/// Rows of a tile are always of x. The large tile reuses most; the small one cuts the product into enough for all.
Status tile_mfma(const TilingWish& wish, const char* desc, Tiling& result) {
  const auto tiles_of = [&](const MfmaShape& shape) {
    return ceil_div(wish.m, shape.rows) * std::int64_t{ceil_div(wish.n, shape.columns)};
  };
  const MfmaShape& shape = tiles_of(kMfmaLarge) < wish.blocks ? kMfmaFew : kMfmaLarge;
  if (wish.columns != 0 && wish.columns != shape.columns)
    return wrong(desc, "tile_columns", wish.columns, fmt::format("0 (the plan's choice) or {}", shape.columns));
  result.rows = shape.rows;
  result.columns = shape.columns;
  result.depth = shape.step_depth();
  result.steps = ceil_div(wish.k, result.depth);
  result.tile_rows = ceil_div(wish.m, result.rows);
  result.tile_columns = ceil_div(wish.n, result.columns);
  constexpr int kFewestSteps = 4;  // a split with fewer sums little for what its exchange costs
  const auto idle = wish.blocks / std::max<std::int64_t>(result.tiles(), 1);
  result.splits = wish.splits != 0 ? wish.splits
                                   : static_cast<int>(std::clamp<std::int64_t>(
                                         std::min<std::int64_t>(idle, result.steps / kFewestSteps), 1, kMostSplits));
  if (result.splits > result.steps)
    return wrong(desc, "splits", wish.splits,
                 fmt::format("0 (the plan's choice), or 1 to {} steps of {}", std::min(result.steps, kMostSplits),
                             result.depth));
  result.threads = shape.threads();
  result.shared_bytes = shape.shared_bytes();
  result.why = fmt::format("{} tiles of {} x {} in {} split{} on {} multiprocessors", result.tiles(), result.rows,
                           result.columns, result.splits, result.splits == 1 ? "" : "s", wish.blocks);
  return {};
}

}  // namespace

Result<Tiling> tile_product(const TilingWish& wish, const MachineShape& shape, const char* desc) {
  Tiling result;
  const bool wgmma = shape.traits.matrix_unit == MatrixUnit::kWgmma;
  if (const Status status = wgmma ? tile_wgmma(wish, desc, result) : tile_mfma(wish, desc, result); !status.ok())
    return status;
  // Strips of about as many bytes from both operands stay in L2 while a group runs.
  result.group = std::max(1, 2048 / result.rows);
  const std::int64_t works = result.tiles() * result.splits;
  if (works > std::numeric_limits<std::int32_t>::max() - wish.blocks)
    return wrong(desc, "m", wish.m, "at most 2^31 tiles");
  result.blocks = static_cast<int>(std::min<std::int64_t>(wish.blocks, works));
  if (result.splits > 1) {
    const int parts = wgmma ? 2 : 1;  // of a tile that count their splits on their own: a warpgroup each
    result.partials_bytes = works * result.rows * result.columns * 4;
    result.workspace_bytes = result.partials_bytes + result.tiles() * parts * 4;
  }
  return result;
}

std::string Tiling::kernel_suffix(const MachineShape& shape, DType dtype) const {
  if (shape.traits.matrix_unit == MatrixUnit::kMfma) return fmt::format("mfma_{}_{}x{}", name_of(dtype), rows, columns);
  return fmt::format("{}_{}{}", name_of(dtype), few_rows ? "few_" : "", columns);
}

std::string Tiling::to_string() const {
  return fmt::format("{}; {} blocks of {} threads, {} KB shared, workspace {} KB", why, blocks, threads,
                     shared_bytes / 1024, workspace_bytes / 1024);
}

}  // namespace farwarp::tile
