#include "farwarp/tile/gemm/tiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "farwarp/tile/gemm/shape_mfma.h"
#include "farwarp/tile/gemm/shape_wgmma.h"

namespace farwarp::tile {
namespace {

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct Choice {
  const char* kernel = "";
  int rows = 0, columns = 0;
  int splits = 0;
  double clocks = 0;
};

/// An estimate of a launch's clocks. A step takes 4 clocks of the matrix unit for a column of 128 rows, or the time to
/// load the tile's bytes from L2 if that is longer. All operands are read from memory once. Fitted to one H200
/// (2026-11): ops/gemm/MEASURED.md, "The plan".
double estimate(const TilingRequest& request, std::int64_t tiles, const Choice& choice, int steps) {
  constexpr double kMemoryBytesPerClock = 2000;
  constexpr double kFill = 4500;  // until the first step's operands arrive
  const double heights = choice.rows / kWgmmaRows;
  const double step = std::max(4.0 * choice.columns * heights,
                               WgmmaShared{choice.rows, choice.columns}.stage_bytes() / request.bytes_per_clock);
  const int sharing = request.clusters && request.all_resident ? choice.splits : 1;
  const double epilogue = 400 + request.column_clocks * choice.columns * heights / sharing;
  const double adding_up = choice.splits == 1 ? 0
                           : request.clusters ? 2000
                                              : 1500 + choice.columns * 8.0 * choice.splits;
  const auto rounds = static_cast<double>(ceil_div(tiles * choice.splits, std::int64_t{request.blocks}));
  const double operands = 2.0 * request.k * (double{1} * request.m + request.n) / kMemoryBytesPerClock;
  return kFill + adding_up + std::max(operands, rounds * ceil_div(steps, choice.splits) * step) + rounds * epilogue;
}

/// Whether a product of `steps` can be cut into tiles and splits of this choice.
bool has_splits(const TilingRequest& request, bool swap_ab, const Choice& choice, int steps) {
  if (choice.splits == 1) return true;
  if (choice.splits > steps || choice.columns > kMaxSplitColumns || choice.rows != kWgmmaRows) return false;
  return request.clusters ? choice.splits == 2 || (swap_ab && choice.splits == 4) : choice.splits <= kMaxSplits;
}

/// The kernels of the dtype, with or without swap_ab.
std::vector<Variant> kernels_for(const TilingRequest& request, bool swap_ab) {
  std::vector<Variant> kernels;
  for (const Variant& kernel : request.kernels)
    if (kernel.dtype == request.dtype && kernel.swap_ab == swap_ab) kernels.push_back(kernel);
  return kernels;
}

bool is_wanted(const TilingRequest& request, const Variant& kernel) {
  return (request.columns == 0 || request.columns == kernel.columns) &&
         (request.rows == 0 || request.rows == kernel.rows);
}

Choice best_choice(std::span<const Variant> kernels, const TilingRequest& request, int row_count, int column_count,
                   bool swap_ab) {
  const int steps = ceil_div(request.k, kWgmmaDepth);
  Choice best;
  for (const Variant& kernel : kernels) {
    if (!is_wanted(request, kernel)) continue;
    const std::int64_t tiles = std::int64_t{ceil_div(row_count, kernel.rows)} * ceil_div(column_count, kernel.columns);
    for (int splits = 1; splits <= kMaxSplits; ++splits) {
      Choice choice{kernel.name, kernel.rows, kernel.columns, splits};
      if (request.splits != 0 && request.splits != splits) continue;
      if (!has_splits(request, swap_ab, choice, steps)) continue;
      if (splits > 1 && (request.clusters || request.splits == 0) && tiles * splits > request.blocks) break;
      if (splits > 1 && request.clusters && (request.splits == 0 || request.all_resident) &&
          tiles * splits > blocks_at_once(request.blocks, splits))
        continue;
      choice.clocks = estimate(request, tiles, choice, steps);
      if (best.columns == 0 || choice.clocks < best.clocks) best = choice;
    }
  }
  return best;
}

/// The widths of the tiles with kWgmmaRows rows, for messages.
std::string widths_of(std::span<const Variant> kernels) {
  std::vector<int> widths;
  for (const Variant& kernel : kernels)
    if (kernel.rows == kWgmmaRows) widths.push_back(kernel.columns);
  return fmt::format("{}", fmt::join(widths, ", "));
}

Status wrong(const char* desc, const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("{}.{} is {}; allowed: {}", desc, field, value, allowed));
}

Status tile_wgmma(const TilingRequest& request, const char* desc, Tiling& result) {
  result.swap_ab = request.m <= kMaxSwapAbRows;
  result.depth = kWgmmaDepth;
  result.steps = ceil_div(request.k, kWgmmaDepth);
  const int row_count = result.swap_ab ? request.n : request.m;
  const int column_count = result.swap_ab ? request.m : request.n;
  const std::vector<Variant> all = kernels_for(request, result.swap_ab);
  std::span<const Variant> kernels = all;
  if (result.swap_ab && request.columns == 0) {  // all rows of x in one tile: w is read once
    while (kernels.size() > 1 && kernels[0].columns < request.m) kernels = kernels.subspan(1);
    kernels = kernels.first(1);
  }
  const auto wanted = [&](const Variant& kernel) { return is_wanted(request, kernel); };
  if (request.rows != 0 && request.rows != kWgmmaRows && std::ranges::none_of(kernels, wanted))
    return wrong(desc, "tile_rows", request.rows,
                 fmt::format("0 (the plan's choice), {}, or {} with m above 64 and tile_columns {}", kWgmmaRows,
                             kWgmmaTallRows, kTallColumns));
  const Choice choice = best_choice(kernels, request, row_count, column_count, result.swap_ab);
  if (choice.columns == 0) {
    if (request.columns != 0 && std::ranges::find(kernels, request.columns, &Variant::columns) == kernels.end())
      return wrong(desc, "tile_columns", request.columns,
                   fmt::format("0 (the plan's choice), {} with m = {}", widths_of(kernels), request.m));
    if (request.clusters)
      return wrong(
          desc, "splits", request.splits,
          fmt::format("0 (the plan's choice), 1, or {} with tile_columns up to {} and tile_rows {}, if k has as "
                      "many steps of {} and all tiles' blocks are at most {}",
                      result.swap_ab ? "2 or 4" : "2", kMaxSplitColumns, kWgmmaRows, kWgmmaDepth,
                      request.all_resident ? blocks_at_once(request.blocks, request.splits) : request.blocks));
    return wrong(desc, "splits", request.splits,
                 fmt::format("1 to {} steps of {}, with tile_columns up to {}", std::min(kMaxSplits, result.steps),
                             kWgmmaDepth, kMaxSplitColumns));
  }
  result.kernel = choice.kernel;
  result.rows = choice.rows;
  result.columns = choice.columns;
  result.clocks = choice.clocks;
  result.tile_row_count = ceil_div(row_count, result.rows);
  result.splits = choice.splits;
  result.tile_column_count = ceil_div(column_count, result.columns);
  result.threads = kWgmmaThreads;
  const int boxes = wgmma_boxes(result.columns, request.boxes_of_256);
  result.shared_bytes = WgmmaShared{result.rows, result.columns, boxes}.total();
  result.why = fmt::format("{} tiles of {} x {} in {} split{} on {} multiprocessors, about {:.0f} clocks",
                           result.tiles(), result.rows, result.columns, result.splits, result.splits == 1 ? "" : "s",
                           request.blocks, choice.clocks);
  return {};
}

/// The rows of a tile are always rows of x. The large tile reuses operands most. The small one is used if there are
/// fewer large tiles than blocks.
Status tile_mfma(const TilingRequest& request, const char* desc, Tiling& result) {
  const auto tiles_of = [&](const MfmaShape& shape) {
    return ceil_div(request.m, shape.rows) * std::int64_t{ceil_div(request.n, shape.columns)};
  };
  const MfmaShape& shape = tiles_of(kMfmaLarge) < request.blocks ? kMfmaSmall : kMfmaLarge;
  if (request.columns != 0 && request.columns != shape.columns)
    return wrong(desc, "tile_columns", request.columns, fmt::format("0 (the plan's choice) or {}", shape.columns));
  if (request.rows != 0 && request.rows != shape.rows)
    return wrong(desc, "tile_rows", request.rows, fmt::format("0 (the plan's choice) or {}", shape.rows));
  for (const Variant& kernel : kernels_for(request, false))
    if (kernel.rows == shape.rows && kernel.columns == shape.columns) result.kernel = kernel.name;
  result.rows = shape.rows;
  result.columns = shape.columns;
  result.depth = shape.step_depth();
  result.steps = ceil_div(request.k, result.depth);
  result.tile_row_count = ceil_div(request.m, result.rows);
  result.tile_column_count = ceil_div(request.n, result.columns);
  constexpr int kLeastDepth = 512;  // splits with less of K gain less than adding up costs
  const auto idle = request.blocks / std::max<std::int64_t>(result.tiles(), 1);
  const std::int64_t deep_enough = result.steps / std::max(1, kLeastDepth / result.depth);
  result.splits = request.splits != 0
                      ? request.splits
                      : static_cast<int>(std::clamp<std::int64_t>(std::min(idle, deep_enough), 1, kMaxSplits));
  if (result.splits > result.steps)
    return wrong(
        desc, "splits", request.splits,
        fmt::format("0 (the plan's choice), or 1 to {} steps of {}", std::min(result.steps, kMaxSplits), result.depth));
  result.threads = shape.threads();
  result.shared_bytes = shape.shared_bytes();
  result.why = fmt::format("{} tiles of {} x {} in {} split{} on {} multiprocessors", result.tiles(), result.rows,
                           result.columns, result.splits, result.splits == 1 ? "" : "s", request.blocks);
  return {};
}

}  // namespace

int blocks_at_once(int blocks, int cluster) {
  constexpr int kPart = 16;
  if (cluster == 1) return blocks;
  const int parts = blocks / kPart;
  if (parts == 0) return blocks / cluster * cluster;
  // Some parts have 14 multiprocessors and others 18: fewer clusters of 4 fit (ops/gemm/MEASURED.md, "The plan").
  const int lost = cluster > 2 ? parts / 4 : 0;
  return (parts * (kPart / cluster) - lost) * cluster;
}

Result<Tiling> tile_product(const TilingRequest& request, const MachineShape& shape, const char* desc) {
  Tiling result;
  const bool wgmma = shape.traits.matrix_unit == MatrixUnit::kWgmma;
  if (const Status status = wgmma ? tile_wgmma(request, desc, result) : tile_mfma(request, desc, result); !status.ok())
    return status;
  // While a group runs, strips of both operands with about the same number of bytes stay in L2.
  result.group = std::max(1, 2048 / result.rows);
  const std::int64_t works = result.tiles() * result.splits;
  if (works > std::numeric_limits<std::int32_t>::max() - request.blocks)
    return wrong(desc, "m", request.m, "at most 2^31 tiles");
  result.blocks = static_cast<int>(std::min<std::int64_t>(request.blocks, works));
  if (wgmma && request.clusters) {
    result.cluster = result.splits;
  } else if (result.splits > 1) {
    const int parts = wgmma ? 2 : 1;  // parts of a tile, each with a counter of its own; wgmma: one for each multiplier
    result.partial_sums_bytes = works * result.rows * result.columns * 4;
    result.workspace_bytes = result.partial_sums_bytes + result.tiles() * parts * 4;
  }
  return result;
}

TensorMapDesc Tiling::map_of_x(const void* x, std::int64_t rows_of_x, std::int64_t k, std::int64_t pitch) const {
  return {.base = const_cast<void*>(x),
          .rows = rows_of_x,
          .columns = k,
          .pitch = pitch,
          .box_rows = swap_ab ? columns : rows,
          .box_columns = depth,
          .swizzled = true};
}

TensorMapDesc Tiling::map_of_w(const void* w, std::int64_t rows_of_w, std::int64_t k, std::int64_t pitch) const {
  TensorMapDesc map = map_of_x(w, rows_of_w, k, pitch);
  map.box_rows = swap_ab ? rows : columns;
  return map;
}

int Tiling::box_rows() const { return swap_ab ? swap_ab_box_rows(columns, cluster) : 64; }

std::string Tiling::to_string() const {
  return fmt::format("{}; {} blocks of {} threads, {} KB shared, workspace {} KB", why, blocks, threads,
                     shared_bytes / 1024, workspace_bytes / 1024);
}

}  // namespace farwarp::tile
