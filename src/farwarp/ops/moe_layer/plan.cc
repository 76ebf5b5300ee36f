#include "farwarp/ops/moe_layer/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/base/arguments.h"
#include "farwarp/base/pointers.h"
#include "farwarp/base/sizes.h"
#include "farwarp/ops/moe_layer/args.h"
#include "farwarp/ops/moe_layer/variants.h"
#include "farwarp/tile/gemm/shape_wgmma.h"

namespace farwarp {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

Status wrong(const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("MoeLayerDesc.{} is {}; allowed: {}", field, value, allowed));
}

std::int64_t all_entries(const MoeLayerDesc& desc, int ranks) {
  return std::int64_t{ranks} * desc.max_tokens * desc.experts_per_token;
}

Status check(const MoeLayerDesc& desc, const MachineShape& shape, int ranks) {
  constexpr int kMost = 1 << 20, kMostTokens = 65535;
  if (shape.traits.matrix_unit != MatrixUnit::kWgmma)
    return {StatusCode::kUnavailable, "moe_layer has kernels for Hopper; allowed: targets cuda, emu_sm90"};
  if (ranks < 1 || ranks > kMaxRanks)
    return invalid_argument(fmt::format("ranks is {}; allowed: 1 to {}", ranks, kMaxRanks));
  if (desc.num_experts < ranks || ceil_div(desc.num_experts, ranks) > moe_layer::kMaxLocalExperts)
    return wrong("num_experts", desc.num_experts,
                 fmt::format("{} (ranks) to {}", ranks, ranks * moe_layer::kMaxLocalExperts));
  if (desc.experts_per_token < 1 || desc.experts_per_token > moe_layer::kMaxTopK)
    return wrong("experts_per_token", desc.experts_per_token, fmt::format("1 to {}", moe_layer::kMaxTopK));
  for (const auto& [field, value] : {std::pair{"hidden", desc.hidden}, std::pair{"intermediate", desc.intermediate}})
    if (value < 8 || value > kMost || value % 8 != 0)
      return wrong(field, value, fmt::format("a multiple of 8 up to {}", kMost));
  if (desc.max_tokens < 1 || desc.max_tokens > kMostTokens)
    return wrong("max_tokens", desc.max_tokens, fmt::format("1 to {}", kMostTokens));
  if (desc.dtype != DType::kBf16 && desc.dtype != DType::kF16)
    return invalid_argument(fmt::format("MoeLayerDesc.dtype is {}; allowed: bf16, fp16", name_or_number(desc.dtype)));
  if (desc.index_type != DType::kI32 && desc.index_type != DType::kI64)
    return invalid_argument(
        fmt::format("MoeLayerDesc.index_type is {}; allowed: int32, int64", name_or_number(desc.index_type)));
  if (desc.activation != Activation::kSwiGlu && desc.activation != Activation::kClampedSwiGlu)
    return wrong("activation", static_cast<int>(desc.activation), "kSwiGlu, kClampedSwiGlu");
  if (desc.max_rows < 0 || desc.max_rows > all_entries(desc, ranks))
    return wrong("max_rows", desc.max_rows, fmt::format("0 (the worst case) to {}", all_entries(desc, ranks)));
  for (const auto& [field, value] : {std::pair{"max_sms", desc.max_sms}, std::pair{"tile_rows", desc.tile_rows},
                                     std::pair{"tile_columns", desc.tile_columns}})
    if (value < 0) return wrong(field, value, "0 (the plan's choice) or more");
  return {};
}

/// Tiles of 64 rows for few rows of an expert; with more, wide ones if columns fill them (MEASURED.md).
const moe_layer::Variant* choose(const MoeLayerDesc& desc, int ranks) {
  const std::int64_t expected = ceil_div(all_entries(desc, ranks), desc.num_experts);
  const int rows = desc.tile_rows != 0 ? desc.tile_rows : expected < 64 ? 64 : tile::kWgmmaRows;
  const bool wide = rows == tile::kWgmmaRows && desc.intermediate % 128 == 0 && desc.hidden % 256 == 0;
  const int columns = desc.tile_columns != 0 ? desc.tile_columns : wide ? 256 : 128;
  for (const moe_layer::Variant& kernel : moe_layer::kKernels)
    if (kernel.dtype == desc.dtype && kernel.rows == rows && kernel.columns == columns) return &kernel;
  return nullptr;
}

MoeLayerWorkspace workspace_of(const MoeLayerPlan& plan) {
  const MoeLayerDesc& desc = plan.desc;
  constexpr std::int64_t kAlignment = 1024, kPacket = sizeof(Packet);
  MoeLayerWorkspace workspace;
  std::int64_t end = 0;
  const auto take = [&end](std::int64_t bytes) {
    const std::int64_t begin = end;
    end = ceil_div(end + bytes, kAlignment) * kAlignment;
    return begin;
  };
  const std::int64_t ranks = plan.ranks, tokens = ranks * desc.max_tokens, entries = tokens * desc.experts_per_token;
  const std::int64_t sent = ranks > 1 ? 2 : 0;  // with one rank nothing is sent
  const std::int64_t padded = plan.row_tiles * plan.rows, element = bytes_of(desc.dtype);
  workspace.headers = take(sent * ranks * kPacket);
  workspace.entries = take(sent * entries * kPacket);
  workspace.row_flags = take(sent * tokens * 8);
  workspace.rows = take(sent * tokens * desc.hidden * element);
  workspace.counts = take(std::int64_t{plan.max_slices} * plan.max_local_experts * 4);
  workspace.row_ids = take(padded * 4);
  workspace.positions = take(entries * 4);
  workspace.h = take(padded * desc.intermediate * element);
  workspace.y = take(padded * desc.hidden * element);
  workspace.bytes = end;
  end = 0;
  workspace.returns = take(sent * tokens * desc.hidden * element);
  workspace.counters = take(2 * moe_layer::counters_of(plan.row_tiles) * 4);
  workspace.ones_bytes = end;
  return workspace;
}

}  // namespace

Result<MoeLayerPlan> plan_moe_layer(const MoeLayerDesc& desc, const MachineShape& shape, int ranks) {
  if (const Status status = check(desc, shape, ranks); !status.ok()) return status;
  const moe_layer::Variant* const kernel = choose(desc, ranks);
  if (kernel == nullptr) {
    if (desc.tile_rows != 0 && desc.tile_rows != 64 && desc.tile_rows != tile::kWgmmaRows)
      return wrong("tile_rows", desc.tile_rows, "0 (the plan's choice), 64, 128");
    return wrong("tile_columns", desc.tile_columns, "0 (the plan's choice), 128, and 256 with tile_rows 128");
  }
  MoeLayerPlan plan;
  plan.desc = desc;
  plan.ranks = ranks;
  plan.kernel = kernel->name;
  plan.rows = kernel->rows;
  plan.columns = kernel->columns;
  plan.max_local_experts = static_cast<int>(ceil_div(desc.num_experts, ranks));
  plan.max_rows = desc.max_rows != 0 ? desc.max_rows : all_entries(desc, ranks);
  // Each expert's last tile may have one row.
  plan.row_tiles = std::min(plan.max_rows, plan.max_rows / plan.rows + plan.max_local_experts);
  constexpr std::int64_t kMostRows = std::int64_t{1} << 30;  // of a tensor map, with room for a tile
  if (plan.row_tiles * plan.rows > kMostRows || all_entries(desc, ranks) > kMostRows)
    return wrong(
        "max_tokens", desc.max_tokens,
        fmt::format("ranks * max_tokens * experts_per_token, and the rows of tiles that hold max_rows, at most {}",
                    kMostRows));
  if (2 * std::int64_t{plan.max_local_experts} * std::max(desc.intermediate, desc.hidden) > kMostRows)
    return wrong("num_experts", desc.num_experts, fmt::format("at most {} rows of all experts' w1 and w2", kMostRows));
  plan.steps_of_hidden = static_cast<int>(ceil_div(desc.hidden, tile::kWgmmaDepth));
  plan.steps_of_inter = static_cast<int>(ceil_div(desc.intermediate, tile::kWgmmaDepth));
  plan.h_columns = static_cast<int>(ceil_div(desc.intermediate, plan.columns / 2));
  plan.y_columns = static_cast<int>(ceil_div(desc.hidden, plan.columns));
  if (plan.row_tiles * (plan.h_columns + plan.y_columns) > kMostRows)
    return wrong("max_rows", desc.max_rows,
                 fmt::format("so many that h and y, of {} and {} columns, have at most {} tiles", desc.intermediate,
                             desc.hidden, kMostRows));
  plan.blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  plan.threads = tile::wgmma_threads(plan.rows);
  plan.max_slices = static_cast<int>(
      std::min<std::int64_t>(ceil_div(all_entries(desc, ranks), moe_layer::kEntriesOfSlice), plan.blocks));
  plan.max_parts = static_cast<int>(ceil_div(desc.hidden, moe_layer::kLeastPart));
  plan.shared_bytes =
      tile::WgmmaShared{plan.rows, plan.columns, moe_layer::kBoxes}.total() + std::int64_t{5} * plan.max_local_experts;
  plan.workspace = workspace_of(plan);
  return plan;
}

std::string MoeLayerPlan::to_string() const {
  return fmt::format(
      "{}: tiles of {} rows, {} columns of h ({} tiles of {} steps) and {} of y ({} tiles of {} steps); up to {} rows "
      "in "
      "{} tiles; {} blocks of {} threads, {} KB shared; {} MB of memory",
      kernel, rows, columns / 2, h_columns, steps_of_hidden, columns, y_columns, steps_of_inter, max_rows, row_tiles,
      blocks, threads, shared_bytes / 1024, memory_bytes() >> 20);
}

}  // namespace farwarp
