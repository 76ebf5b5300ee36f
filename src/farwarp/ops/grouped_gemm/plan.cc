#include "farwarp/ops/grouped_gemm/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/grouped_gemm/args.h"
#include "farwarp/ops/grouped_gemm/variants.h"
#include "farwarp/tile/gemm/shape_wgmma.h"

namespace farwarp {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

Status wrong(const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("GroupedGemmDesc.{} is {}; allowed: {}", field, value, allowed));
}

Status check(const GroupedGemmDesc& desc, const MachineShape& shape) {
  constexpr int kMost = 1 << 24;
  if (shape.traits.matrix_unit != MatrixUnit::kWgmma)
    return {StatusCode::kUnavailable, "grouped_gemm has kernels for Hopper; allowed: targets cuda, emu_sm90"};
  if (desc.groups < 1 || desc.groups > grouped_gemm::kMostGroups)
    return wrong("groups", desc.groups, fmt::format("1 to {}", grouped_gemm::kMostGroups));
  if (desc.max_rows < 1 || desc.max_rows > kMost)
    return wrong("max_rows", desc.max_rows, fmt::format("1 to {}", kMost));
  if (desc.scaling != GemmScaling::kNone && desc.scaling != GemmScaling::kBlocks)
    return wrong("scaling", static_cast<int>(desc.scaling), "kNone, kBlocks");
  if (desc.group_rows != GroupRows::kOffsets && desc.group_rows != GroupRows::kCounts)
    return wrong("group_rows", static_cast<int>(desc.group_rows), "kOffsets, kCounts");
  if (desc.activation != Activation::kNone && desc.activation != Activation::kSwiGlu &&
      desc.activation != Activation::kClampedSwiGlu)
    return wrong("activation", static_cast<int>(desc.activation), "kNone, kSwiGlu, kClampedSwiGlu");
  const int of_n = desc.activation == Activation::kNone ? 8 : 64, of_k = desc.scaling == GemmScaling::kNone ? 8 : 16;
  if (desc.n < of_n || desc.n > kMost || desc.n % of_n != 0)
    return wrong("n", desc.n, fmt::format("a multiple of {} up to {}", of_n, kMost));
  if (desc.k < of_k || desc.k > kMost || desc.k % of_k != 0)
    return wrong("k", desc.k, fmt::format("a multiple of {} up to {}", of_k, kMost));
  if (desc.dtype != DType::kBf16 && desc.dtype != DType::kF16)
    return invalid_argument(
        fmt::format("GroupedGemmDesc.dtype is {}; allowed: bf16, fp16", name_or_number(desc.dtype)));
  for (const auto& [field, value] :
       {std::pair{"expected_rows", desc.expected_rows}, std::pair{"max_sms", desc.max_sms},
        std::pair{"tile_rows", desc.tile_rows}, std::pair{"tile_columns", desc.tile_columns}}) {
    if (value < 0) return wrong(field, value, "0 (the plan's choice) or more");
  }
  return {};
}

/// Rows of a group that the plan reckons with.
int expected_rows(const GroupedGemmDesc& desc) {
  if (desc.expected_rows > 0) return desc.expected_rows;
  return desc.group_rows == GroupRows::kCounts ? desc.max_rows : static_cast<int>(ceil_div(desc.max_rows, desc.groups));
}

/// Tiles of 64 rows for few rows, wide ones where the matrix unit is the bound and columns fill them.
const grouped_gemm::Variant* choose(const GroupedGemmDesc& desc, int columns_of_w) {
  const int expected = expected_rows(desc);
  const int rows = desc.tile_rows != 0 ? desc.tile_rows : expected <= 64 ? 64 : tile::kWgmmaRows;
  const bool fp8 = desc.scaling != GemmScaling::kNone, gated = desc.activation != Activation::kNone;
  const bool wide = rows == tile::kWgmmaRows && !fp8 && expected > 256 && columns_of_w % 256 == 0;
  const int columns = desc.tile_columns != 0 ? desc.tile_columns : wide ? 256 : 128;
  for (const grouped_gemm::Variant& kernel : grouped_gemm::kKernels) {
    if (kernel.dtype == desc.dtype && kernel.fp8 == fp8 && kernel.gated == gated && kernel.rows == rows &&
        kernel.columns == columns)
      return &kernel;
  }
  return nullptr;
}

}  // namespace

Result<GroupedGemmPlan> plan_grouped_gemm(const GroupedGemmDesc& desc, const MachineShape& shape) {
  if (const Status status = check(desc, shape); !status.ok()) return status;
  GroupedGemmPlan plan;
  plan.desc = desc;
  const std::int64_t rows_of_w = std::int64_t{desc.groups} * plan.parts() * desc.n;
  constexpr std::int64_t kMostRows = std::int64_t{1} << 30;  // of a tensor map, with room for a tile
  if (rows_of_w > kMostRows) return wrong("n", desc.n, fmt::format("at most {} rows of all groups' w", kMostRows));
  if (plan.all_rows() > kMostRows)
    return wrong("max_rows", desc.max_rows, fmt::format("at most {} rows of all groups", kMostRows));
  const grouped_gemm::Variant* const kernel = choose(desc, plan.parts() * desc.n);
  if (kernel == nullptr) {
    if (desc.tile_rows != 0 && desc.tile_rows != 64 && desc.tile_rows != tile::kWgmmaRows)
      return wrong("tile_rows", desc.tile_rows, "0 (the plan's choice), 64, 128");
    return wrong("tile_columns", desc.tile_columns,
                 "0 (the plan's choice), 128, and 256 with tile_rows 128 and without scaling");
  }
  plan.kernel = kernel->name;
  plan.rows = kernel->rows;
  plan.columns = kernel->columns;
  plan.steps = static_cast<int>(ceil_div(desc.k / plan.elements_per_word(), tile::kWgmmaDepth));
  plan.column_tiles = static_cast<int>(ceil_div(desc.n, plan.columns / plan.parts()));
  // Each group's last tile may have one row.
  const std::int64_t tiles = plan.all_rows() / plan.rows + desc.groups;
  constexpr std::int64_t kMostWorks = std::int64_t{1} << 30;
  if (tiles * plan.column_tiles > kMostWorks)
    return wrong("max_rows", desc.max_rows, fmt::format("at most {} tiles", kMostWorks));
  const int blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  plan.blocks = static_cast<int>(std::min<std::int64_t>(blocks, tiles * plan.column_tiles));
  plan.threads = tile::wgmma_threads(plan.rows);
  plan.shared_bytes =
      tile::WgmmaShared{plan.rows, plan.columns, grouped_gemm::kBoxes}.total() + std::int64_t{4} * desc.groups;
  return plan;
}

std::string GroupedGemmPlan::to_string() const {
  return fmt::format("{}: tiles of {} x {}, {} columns of tiles, {} steps; {} blocks of {} threads, {} KB shared",
                     kernel, rows, columns / parts(), column_tiles, steps, blocks, threads, shared_bytes / 1024);
}

}  // namespace farwarp
