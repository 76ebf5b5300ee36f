#include "farwarp/ops/gemm/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "farwarp/ops/gemm/args.h"

namespace farwarp {
namespace {

using gemm::kMostSplitColumns;
using gemm::kMostSplits;
using gemm::WgmmaShared;

Status wrong(const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("GemmDesc.{} is {}; allowed: {}", field, value, allowed));
}

Status check_pitch(const char* field, std::int64_t pitch, int least) {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;  // a tensor copy takes strides below 2^40 bytes
  if (pitch != 0 && (pitch < least || pitch % 8 != 0 || pitch > kMost))
    return wrong(field, pitch, fmt::format("0, or a multiple of 8 from {} to {}", least, kMost));
  return {};
}

Status check(const GemmDesc& desc) {
  constexpr int kMost = 1 << 24;
  if (desc.m < 1 || desc.m > kMost) return wrong("m", desc.m, fmt::format("1 to {}", kMost));
  if (desc.n < 8 || desc.n > kMost || desc.n % 8 != 0)
    return wrong("n", desc.n, fmt::format("a multiple of 8 up to {}", kMost));
  if (desc.k < 8 || desc.k > kMost || desc.k % 8 != 0)
    return wrong("k", desc.k, fmt::format("a multiple of 8 up to {}", kMost));
  if (desc.dtype != DType::kBf16 && desc.dtype != DType::kF16)
    return invalid_argument(fmt::format("GemmDesc.dtype is {}; allowed: bf16, fp16", name_of(desc.dtype)));
  for (const Status& status :
       {check_pitch("x_pitch", desc.x_pitch, desc.k), check_pitch("w_pitch", desc.w_pitch, desc.k),
        check_pitch("y_pitch", desc.y_pitch, desc.n)}) {
    if (!status.ok()) return status;
  }
  if (desc.max_sms < 0) return wrong("max_sms", desc.max_sms, "0 (all) or more");
  if (desc.splits < 0 || desc.splits > kMostSplits)
    return wrong("splits", desc.splits, fmt::format("0 (the plan's choice) to {}", kMostSplits));
  return {};
}

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Widths that entry_wgmma.dev.cc has kernels for.
constexpr int kColumns[] = {64, 96, 128, 160, 192, 224, 256};
constexpr int kFewColumns[] = {16, 32, 64};

struct Tiling {
  int columns = 0;
  int splits = 0;
  double clocks = 0;
};

/// Clocks of a launch, roughly: a step takes the matrix unit 4 clocks a column, or L2 the time for the tile's bytes; and all bytes
/// come from memory once. Fitted to one H200 (2026-11): 64 x 2304 x 7168 takes 24.2 us in 4 splits and 26.5 in 7, 512 x 1536 x
/// 4096 23.5 us in tiles of 96 columns in 2 splits and 28.8 in one.
double estimate(const GemmDesc& desc, std::int64_t tiles, int splits, int columns, int steps, int blocks) {
  constexpr double kL2BytesPerClock = 52;  // for each of 132 multiprocessors at once
  constexpr double kMemoryBytesPerClock = 2500;
  constexpr double kFill = 1500;  // until the first step's operands are there
  const double step = std::max(4.0 * columns, WgmmaShared::stage_bytes(columns) / kL2BytesPerClock);
  const double epilogue = 300 + 6.0 * columns;
  const double exchange = splits > 1 ? 1500 + columns * 8.0 * splits : 0;
  const auto rounds = static_cast<double>(ceil_div(tiles * splits, std::int64_t{blocks}));
  const double operands = 2.0 * desc.k * (double{1} * desc.m + desc.n) / kMemoryBytesPerClock;
  return kFill + exchange + std::max(operands, rounds * ceil_div(steps, splits) * step) + rounds * epilogue;
}

Tiling best_tiling(std::span<const int> widths, const GemmDesc& desc, int tile_rows, int columns_in_all, int blocks) {
  const int steps = ceil_div(desc.k, gemm::kStepDepth);
  Tiling best;
  for (const int columns : widths) {
    if (desc.tile_columns != 0 && desc.tile_columns != columns) continue;
    const std::int64_t tiles = std::int64_t{tile_rows} * ceil_div(columns_in_all, columns);
    const int most = columns <= kMostSplitColumns ? std::min(kMostSplits, steps) : 1;
    for (int splits = 1; splits <= most; ++splits) {
      if (desc.splits != 0 && desc.splits != splits) continue;
      if (desc.splits == 0 && splits > 1 && tiles * splits > blocks) break;
      const double clocks = estimate(desc, tiles, splits, columns, steps, blocks);
      if (best.columns == 0 || clocks < best.clocks) best = {columns, splits, clocks};
    }
  }
  return best;
}

std::string list(std::span<const int> values) { return fmt::format("{}", fmt::join(values, ", ")); }

Status plan_wgmma(GemmPlan& plan) {
  const GemmDesc& desc = plan.desc;
  plan.few_rows = desc.m <= 64;
  plan.rows = gemm::kTileRows;
  plan.depth = gemm::kStepDepth;
  const int row_count = plan.few_rows ? desc.n : desc.m;
  const int column_count = plan.few_rows ? desc.m : desc.n;
  std::span<const int> widths = kColumns;
  if (plan.few_rows) {  // all rows of x in one tile: w is read once
    widths = kFewColumns;
    while (widths.size() > 1 && widths[0] < desc.m && desc.tile_columns == 0) widths = widths.subspan(1);
    if (desc.tile_columns == 0) widths = widths.first(1);
  }
  plan.tile_rows = ceil_div(row_count, plan.rows);
  const Tiling tiling = best_tiling(widths, desc, plan.tile_rows, column_count, plan.blocks);
  if (tiling.columns == 0) {
    if (std::find(widths.begin(), widths.end(), desc.tile_columns) == widths.end() && desc.tile_columns != 0)
      return wrong("tile_columns", desc.tile_columns,
                   fmt::format("0 (the plan's choice), {} with m = {}", list(widths), desc.m));
    return wrong(
        "splits", desc.splits,
        fmt::format("1 to {} steps of {}, with tile_columns up to {}",
                    std::min(kMostSplits, ceil_div(desc.k, gemm::kStepDepth)), gemm::kStepDepth, kMostSplitColumns));
  }
  plan.columns = tiling.columns;
  plan.splits = tiling.splits;
  plan.tile_columns = ceil_div(column_count, plan.columns);
  plan.threads = gemm::kWgmmaThreads;
  plan.shared_bytes = WgmmaShared::total(plan.columns);
  plan.kernel = fmt::format("gemm_{}_{}{}", name_of(desc.dtype), plan.few_rows ? "few_" : "", plan.columns);
  plan.why = fmt::format("{} tiles of {} x {} in {} split{} on {} multiprocessors, about {:.0f} clocks",
                         std::int64_t{plan.tile_rows} * plan.tile_columns, plan.rows, plan.columns, plan.splits,
                         plan.splits == 1 ? "" : "s", plan.blocks, tiling.clocks);
  return {};
}

/// Rows of a tile are always of x. The large tile reuses most; the small one cuts the product into enough for all.
Status plan_mfma(GemmPlan& plan, std::int64_t& parts_of_tile) {
  const GemmDesc& desc = plan.desc;
  for (const auto& [field, pitch] :
       {std::pair{"x_pitch", desc.x_pitch}, std::pair{"w_pitch", desc.w_pitch}, std::pair{"y_pitch", desc.y_pitch}}) {
    if (pitch > gemm::kMfmaMostPitch) return wrong(field, pitch, fmt::format("at most {} here", gemm::kMfmaMostPitch));
  }
  const auto tiles_of = [&](const tile::MfmaShape& shape) {
    return ceil_div(desc.m, shape.rows) * std::int64_t{ceil_div(desc.n, shape.columns)};
  };
  const bool few = tiles_of(gemm::kMfmaLarge) < plan.blocks;
  const tile::MfmaShape& shape = few ? gemm::kMfmaFew : gemm::kMfmaLarge;
  if (desc.tile_columns != 0 && desc.tile_columns != shape.columns)
    return wrong("tile_columns", desc.tile_columns, fmt::format("0 (the plan's choice) or {}", shape.columns));
  plan.rows = shape.rows;
  plan.columns = shape.columns;
  plan.depth = shape.step_depth();
  plan.tile_rows = ceil_div(desc.m, plan.rows);
  plan.tile_columns = ceil_div(desc.n, plan.columns);
  const int steps = ceil_div(desc.k, plan.depth);
  constexpr int kFewestSteps = 4;  // a split with fewer sums little for what its exchange costs
  const auto idle = plan.blocks / std::max<std::int64_t>(tiles_of(shape), 1);
  plan.splits = desc.splits != 0 ? desc.splits
                                 : static_cast<int>(std::clamp<std::int64_t>(
                                       std::min<std::int64_t>(idle, steps / kFewestSteps), 1, kMostSplits));
  if (plan.splits > steps)
    return wrong(
        "splits", desc.splits,
        fmt::format("0 (the plan's choice), or 1 to {} steps of {}", std::min(steps, kMostSplits), plan.depth));
  plan.threads = shape.threads();
  plan.shared_bytes = shape.shared_bytes();
  plan.kernel = fmt::format("gemm_mfma_{}_{}x{}", name_of(desc.dtype), plan.rows, plan.columns);
  plan.why = fmt::format("{} tiles of {} x {} in {} split{} on {} multiprocessors", tiles_of(shape), plan.rows,
                         plan.columns, plan.splits, plan.splits == 1 ? "" : "s", plan.blocks);
  parts_of_tile = 1;
  return {};
}

}  // namespace

Result<GemmPlan> plan_gemm(const GemmDesc& desc, const MachineShape& shape) {
  if (const Status status = check(desc); !status.ok()) return status;
  GemmPlan plan;
  plan.desc = desc;
  if (desc.x_pitch == 0) plan.desc.x_pitch = desc.k;
  if (desc.w_pitch == 0) plan.desc.w_pitch = desc.k;
  if (desc.y_pitch == 0) plan.desc.y_pitch = desc.n;
  plan.blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  std::int64_t parts_of_tile = 2;  // that count their splits on their own: a warpgroup each
  const bool wgmma = shape.traits.matrix_unit == MatrixUnit::kWgmma;
  if (const Status status = wgmma ? plan_wgmma(plan) : plan_mfma(plan, parts_of_tile); !status.ok()) return status;
  // Strips of about as many bytes from both operands stay in L2 while a group runs.
  plan.group = std::max(1, 2048 / plan.rows);
  const std::int64_t tiles = static_cast<std::int64_t>(plan.tile_rows) * plan.tile_columns;
  if (tiles * plan.splits > std::numeric_limits<std::int32_t>::max() - plan.blocks)
    return wrong("m", desc.m, "at most 2^31 tiles");
  plan.blocks = static_cast<int>(std::min<std::int64_t>(plan.blocks, tiles * plan.splits));
  if (plan.splits > 1) {
    plan.partials_bytes = tiles * plan.splits * plan.rows * plan.columns * 4;
    plan.workspace_bytes = plan.partials_bytes + tiles * parts_of_tile * 4;
  }
  return plan;
}

std::string GemmPlan::to_string() const {
  return fmt::format("{}: {}; {} blocks of {} threads, {} KB shared, workspace {} KB", kernel, why, blocks, threads,
                     shared_bytes / 1024, workspace_bytes / 1024);
}

}  // namespace farwarp
