#include "farwarp/tile/gemm/tiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <set>
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
  bool swap_ab = false;
  int rows = 0, columns = 0;
  int x_rows = 0;
  int splits = 0;
  double clocks = 0;
};

/// Clocks of the matrix unit for a step: 4 for a column of 128 rows. The unit takes no fewer than 64 rows.
double matrix_clocks(const Choice& choice) { return 4.0 * choice.columns * choice.rows / kWgmmaRows; }

/// Which of several times bounds a step: somewhat more than the longest, because they also delay each other.
double longest_of(double power, std::initializer_list<double> clocks) {
  double sum = 0;
  for (const double each : clocks) sum += std::pow(each, power);
  return std::pow(sum, 1 / power);
}

/// An estimate of the clocks of a launch that only multiplies: a step waits for the matrix unit, for L2, which serves
/// all blocks, or for its own chain of barriers and instructions; memory delivers both operands once and takes y.
/// Fitted to one H200 (2026-11): ops/gemm/MEASURED.md, "The plan".
double estimate_alone(const TilingRequest& request, std::int64_t tiles, const Choice& choice, int steps) {
  constexpr double kFill = 8430, kMemoryBytesPerClock = 2550;
  // Clusters share less: their blocks read different parts of K.
  const double l2_bytes_per_clock = choice.splits == 1 ? 10830 : 8020;
  const double works = static_cast<double>(tiles) * choice.splits;
  const double blocks = std::min<double>(works, request.blocks), rounds = std::ceil(works / request.blocks);
  const double bytes = 128.0 * (choice.x_rows + (choice.swap_ab ? choice.rows : choice.columns));
  const double chain = choice.rows < kWgmmaRows ? 288 : 373;  // one warpgroup, or two
  const double step = longest_of(4, {matrix_clocks(choice), bytes * blocks / l2_bytes_per_clock, chain});
  const double memory = 2.0 * (double{1} * request.k * (request.m + request.n) + double{1} * request.m * request.n) /
                        kMemoryBytesPerClock;
  const double adding_up = choice.splits == 1 ? 0 : 1950 + 5.2 * choice.columns;
  return kFill + adding_up + longest_of(8, {memory, rounds * ceil_div(steps, choice.splits) * step}) +
         rounds * (740 + 2.2 * choice.columns);
}

/// The same for kernels that send or wait for other ranks. A step takes the matrix unit's time, or the time to load the
/// tile's bytes from L2 if that is longer. Fitted to one H200 (2026-11).
double estimate_beside_sending(const TilingRequest& request, std::int64_t tiles, const Choice& choice, int steps) {
  constexpr double kMemoryBytesPerClock = 2000;
  constexpr double kFill = 4500;  // until the first step's operands arrive
  const double step =
      std::max(matrix_clocks(choice), WgmmaShared{choice.rows, choice.columns}.stage_bytes() / request.bytes_per_clock);
  const int sharing = request.clusters && request.all_resident ? choice.splits : 1;
  const double epilogue = 400 + request.column_clocks * choice.columns / sharing;
  const double adding_up = choice.splits == 1 ? 0
                           : request.clusters ? 2000
                                              : 1500 + choice.columns * 8.0 * choice.splits;
  const auto rounds = static_cast<double>(ceil_div(tiles * choice.splits, std::int64_t{request.blocks}));
  const double operands = 2.0 * request.k * (double{1} * request.m + request.n) / kMemoryBytesPerClock;
  return kFill + adding_up + std::max(operands, rounds * ceil_div(steps, choice.splits) * step) + rounds * epilogue;
}

/// Whether a product of `steps` can be cut into tiles and splits of this choice.
bool has_splits(const TilingRequest& request, const Choice& choice, int steps) {
  if (choice.splits == 1) return true;
  if (choice.splits > steps || choice.columns > kMaxSplitColumns || choice.rows != kWgmmaRows) return false;
  if (!request.clusters) return choice.splits <= kMaxSplits;
  const bool four = request.alone ? has_four_splits(choice.swap_ab, choice.columns)
                                  : choice.swap_ab && choice.columns <= kMaxFourSplitColumns;
  return choice.splits == 2 || (choice.splits == 4 && four);
}

/// The kernels of the dtype that request.swap_ab allows.
std::vector<Variant> kernels_for(const TilingRequest& request) {
  const bool few = request.m <= kMaxSwapAbRows;
  std::vector<Variant> kernels;
  int least = 0;  // columns of the narrowest tile that holds all rows of x
  for (const Variant& kernel : request.kernels) {
    const bool fits = request.swap_ab == SwapAb::kFewRows ? kernel.swap_ab == few
                      : request.swap_ab == SwapAb::kAuto  ? true
                                                          : kernel.swap_ab == (request.swap_ab == SwapAb::kYes);
    if (kernel.dtype != request.dtype || !fits) continue;
    kernels.push_back(kernel);
    if (kernel.columns >= request.m && (least == 0 || kernel.columns < least)) least = kernel.columns;
  }
  if (request.swap_ab == SwapAb::kFewRows && few && request.columns == 0)  // w is read once
    std::erase_if(kernels, [&](const Variant& kernel) { return kernel.columns != least; });
  return kernels;
}

bool is_wanted(const TilingRequest& request, const Variant& kernel) {
  return (request.columns == 0 || request.columns == kernel.columns) &&
         (request.rows == 0 || request.rows == kernel.rows);
}

/// The tiles of a choice.
struct TileCounts {
  int rows, columns;
  std::int64_t all() const { return std::int64_t{rows} * columns; }
};
TileCounts tiles_of(const TilingRequest& request, const Choice& choice) {
  if (choice.swap_ab) return {ceil_div(request.n, choice.rows), ceil_div(request.m, choice.columns)};
  return {ceil_div(request.m, choice.rows), ceil_div(request.n, choice.columns)};
}

Choice best_choice(std::span<const Variant> kernels, const TilingRequest& request) {
  const int steps = ceil_div(request.k, kWgmmaDepth);
  Choice best;
  for (const Variant& kernel : kernels) {
    if (!is_wanted(request, kernel)) continue;
    Choice choice{.kernel = kernel.name, .swap_ab = kernel.swap_ab, .rows = kernel.rows, .columns = kernel.columns};
    const TileCounts tiles = tiles_of(request, choice);
    for (choice.splits = 1; choice.splits <= kMaxSplits; ++choice.splits) {
      if (request.splits != 0 && request.splits != choice.splits) continue;
      if (!has_splits(request, choice, steps)) continue;
      const std::int64_t works = tiles.all() * choice.splits;
      if (choice.splits > 1 && (request.clusters || request.splits == 0) && works > request.blocks) break;
      if (choice.splits > 1 && request.clusters && (request.splits == 0 || request.all_resident) &&
          works > blocks_at_once(request.blocks, choice.splits))
        continue;
      const int room = kernel.swap_ab ? kernel.columns : kernel.rows;
      choice.x_rows = request.alone ? ceil_div(request.m, kernel.swap_ab ? tiles.columns : tiles.rows) : room;
      choice.clocks = request.alone ? estimate_alone(request, tiles.all(), choice, steps)
                                    : estimate_beside_sending(request, tiles.all(), choice, steps);
      if (best.columns == 0 || choice.clocks < best.clocks) best = choice;
    }
  }
  return best;
}

Status wrong(const char* desc, const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("{}.{} is {}; allowed: {}", desc, field, value, allowed));
}

/// What `size` has in kernels that `with` takes, for messages.
template <class With>
std::string sizes_of(std::span<const Variant> kernels, int Variant::*size, const With& with) {
  std::set<int> sizes;
  for (const Variant& kernel : kernels)
    if (with(kernel)) sizes.insert(kernel.*size);
  return fmt::format("{}", fmt::join(sizes, ", "));
}

/// Why best_choice() found nothing.
Status no_choice(std::span<const Variant> kernels, const TilingRequest& request, const char* desc) {
  const auto columns_fit = [&](const Variant& kernel) {
    return request.columns == 0 || request.columns == kernel.columns;
  };
  if (std::ranges::none_of(kernels, columns_fit))
    return wrong(desc, "tile_columns", request.columns,
                 fmt::format("0 (the plan's choice), {}{}",
                             sizes_of(kernels, &Variant::columns, [](const Variant&) { return true; }),
                             request.swap_ab == SwapAb::kFewRows ? fmt::format(" with m = {}", request.m) : ""));
  if (std::ranges::none_of(kernels, [&](const Variant& kernel) { return is_wanted(request, kernel); }))
    return wrong(desc, "tile_rows", request.rows,
                 fmt::format("0 (the plan's choice), {}{}", sizes_of(kernels, &Variant::rows, columns_fit),
                             request.columns == 0 ? "" : fmt::format(" with tile_columns = {}", request.columns)));
  const int steps = ceil_div(request.k, kWgmmaDepth);
  if (!request.clusters)
    return wrong(desc, "splits", request.splits,
                 fmt::format("1 to {} steps of {}, with tile_columns up to {}", std::min(kMaxSplits, steps),
                             kWgmmaDepth, kMaxSplitColumns));
  const std::string wide =
      request.alone ? fmt::format(
                          "with tile_rows {} also 2 with tile_columns up to {}, and 4 with tile_columns 128, or "
                          "with swap_ab 16 to 80",
                          kWgmmaRows, kMaxSplitColumns)
                    : fmt::format("2 with tile_columns up to {}; 4 with m up to {}", kMaxSplitColumns, kMaxSwapAbRows);
  return wrong(
      desc, "splits", request.splits,
      fmt::format("0 (the plan's choice), 1; {}; if k has as many steps of {} and all tiles' blocks are at most {}",
                  wide, kWgmmaDepth,
                  request.all_resident ? blocks_at_once(request.blocks, request.splits) : request.blocks));
}

Status tile_wgmma(const TilingRequest& request, const char* desc, Tiling& result) {
  const std::vector<Variant> kernels = kernels_for(request);
  const Choice choice = best_choice(kernels, request);
  if (choice.columns == 0) return no_choice(kernels, request, desc);
  const TileCounts tiles = tiles_of(request, choice);
  result.kernel = choice.kernel;
  result.swap_ab = choice.swap_ab;
  result.depth = kWgmmaDepth;
  result.steps = ceil_div(request.k, kWgmmaDepth);
  result.rows = choice.rows;
  result.columns = choice.columns;
  result.x_rows = choice.x_rows;
  result.clocks = choice.clocks;
  result.splits = choice.splits;
  result.tile_row_count = tiles.rows;
  result.tile_column_count = tiles.columns;
  result.threads = wgmma_threads(result.rows);
  const int boxes =
      request.alone ? gemm_boxes(result.columns, result.swap_ab) : wgmma_boxes(result.columns, request.boxes_of_256);
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
  for (const Variant& kernel : request.kernels)
    if (kernel.dtype == request.dtype && kernel.rows == shape.rows && kernel.columns == shape.columns)
      result.kernel = kernel.name;
  result.rows = result.x_rows = shape.rows;
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
  // While a group runs, strips of both operands with about the same number of bytes stay in L2. Neighbouring blocks
  // share rows of w, which L2 then serves together: ops/gemm/MEASURED.md, "What bounds it". Clusters gain nothing.
  result.group = result.swap_ab && result.splits == 1 ? 2 : std::max(1, 2048 / result.rows);
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
          .box_rows = x_rows,
          .box_columns = depth,
          .swizzled = true};
}

LastTile Tiling::last_tile(std::int64_t rows_of_x) const {
  const auto rows = static_cast<std::int32_t>(rows_of_x % x_rows);
  return swap_ab || rows == 0 ? LastTile{} : LastTile{static_cast<std::int32_t>(rows_of_x) - rows, rows};
}

TensorMapDesc Tiling::map_of_last_x(const void* x, std::int64_t rows_of_x, std::int64_t k, std::int64_t pitch,
                                    const LastTile& last) const {
  TensorMapDesc map = map_of_x(x, rows_of_x, k, pitch);
  if (last.row >= 0) map.box_rows = last.rows;
  return map;
}

TensorMapDesc Tiling::map_of_w(const void* w, std::int64_t rows_of_w, std::int64_t k, std::int64_t pitch) const {
  TensorMapDesc map = map_of_x(w, rows_of_w, k, pitch);
  map.box_rows = swap_ab ? rows : columns;
  return map;
}

int Tiling::box_rows() const { return std::min(first_box_rows(swap_ab, columns, cluster), x_rows); }

std::string Tiling::to_string() const {
  return fmt::format("{}; {} blocks of {} threads, {} KB shared, workspace {} KB", why, blocks, threads,
                     shared_bytes / 1024, workspace_bytes / 1024);
}

}  // namespace farwarp::tile
