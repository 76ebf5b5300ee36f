#include "farwarp/ops/gemm/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/gemm/args.h"
#include "farwarp/ops/gemm/variants.h"
#include "farwarp/tile/gemm/shape_wgmma.h"

namespace farwarp {
namespace {

using tile::kMaxSplits;

Status wrong(const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("GemmDesc.{} is {}; allowed: {}", field, value, allowed));
}

Status check_pitch(const char* field, std::int64_t pitch, int least, int multiple) {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;  // a tensor copy takes strides below 2^40 bytes
  if (pitch != 0 && (pitch < least || pitch % multiple != 0 || pitch > kMost))
    return wrong(field, pitch, fmt::format("0, or a multiple of {} from {} to {}", multiple, least, kMost));
  return {};
}

Status check_scaling(const GemmDesc& desc, const MachineShape& shape) {
  using Scaling = GemmScaling;
  const Scaling scaling = desc.scaling;
  if (scaling != Scaling::kNone && scaling != Scaling::kBlocks && scaling != Scaling::kRows &&
      scaling != Scaling::kTensor)
    return wrong("scaling", static_cast<int>(scaling), "kNone, kBlocks, kRows, kTensor");
  const auto refuse = [](const char* field, const char* value, const char* allowed) {
    return invalid_argument(fmt::format("GemmDesc.{} is {}; allowed: {}", field, value, allowed));
  };
  if (scaling != Scaling::kNone && shape.traits.matrix_unit != MatrixUnit::kWgmma)
    return refuse("scaling", name_of(scaling), "none (CDNA has no kernels for e4m3 operands)");
  if (scaling != Scaling::kBlocks && desc.x_scale_by_column)
    return refuse("x_scale_by_column", "1", "0, or 1 with scaling blocks");
  if (scaling != Scaling::kNone && desc.swap_ab == tile::SwapAb::kYes)
    return refuse("swap_ab", "yes", "auto, no, and yes with scaling none");
  return {};
}

Status check(const GemmDesc& desc) {
  constexpr int kMost = 1 << 24;
  if (desc.m < 1 || desc.m > kMost) return wrong("m", desc.m, fmt::format("1 to {}", kMost));
  if (desc.n < 8 || desc.n > kMost || desc.n % 8 != 0)
    return wrong("n", desc.n, fmt::format("a multiple of 8 up to {}", kMost));
  // Rows begin at multiples of 16 bytes.
  const int multiple = desc.scaling == GemmScaling::kNone ? 8 : 16;
  if (desc.k < multiple || desc.k > kMost || desc.k % multiple != 0)
    return wrong("k", desc.k, fmt::format("a multiple of {} up to {}", multiple, kMost));
  if (desc.dtype != DType::kBf16 && desc.dtype != DType::kF16)
    return invalid_argument(fmt::format("GemmDesc.dtype is {}; allowed: bf16, fp16", name_or_number(desc.dtype)));
  for (const Status& status :
       {check_pitch("x_pitch", desc.x_pitch, desc.k, multiple), check_pitch("w_pitch", desc.w_pitch, desc.k, multiple),
        check_pitch("y_pitch", desc.y_pitch, desc.n, 8)}) {
    if (!status.ok()) return status;
  }
  if (desc.max_sms < 0) return wrong("max_sms", desc.max_sms, "0 (all) or more");
  if (desc.swap_ab != tile::SwapAb::kAuto && desc.swap_ab != tile::SwapAb::kNo && desc.swap_ab != tile::SwapAb::kYes)
    return wrong("swap_ab", static_cast<int>(desc.swap_ab), "kAuto, kNo, kYes");
  if (desc.tile_rows < 0)
    return wrong("tile_rows", desc.tile_rows, "0 (the plan's choice) or a height that has a kernel");
  if (desc.splits < 0 || desc.splits > kMaxSplits)
    return wrong("splits", desc.splits, fmt::format("0 (the plan's choice) to {}", kMaxSplits));
  return {};
}

/// Offsets within a tile of the mfma kernels are 32 bits wide.
Status check_mfma_pitches(const GemmDesc& desc) {
  for (const auto& [field, pitch] :
       {std::pair{"x_pitch", desc.x_pitch}, std::pair{"w_pitch", desc.w_pitch}, std::pair{"y_pitch", desc.y_pitch}}) {
    if (pitch > gemm::kMfmaMostPitch) return wrong(field, pitch, fmt::format("at most {} here", gemm::kMfmaMostPitch));
  }
  return {};
}

std::span<const tile::Variant> kernels_of(const GemmDesc& desc, const MachineShape& shape) {
  if (desc.scaling != GemmScaling::kNone) return gemm::kFp8Kernels;
  if (shape.traits.matrix_unit == MatrixUnit::kWgmma) return gemm::kWgmmaKernels;
  return gemm::kMfmaKernels;
}

}  // namespace

Result<GemmPlan> plan_gemm(const GemmDesc& desc, const MachineShape& shape) {
  if (const Status status = first_failure({check(desc), check_scaling(desc, shape)}); !status.ok()) return status;
  GemmPlan plan;
  plan.desc = desc;
  if (desc.x_pitch == 0) plan.desc.x_pitch = desc.k;
  if (desc.w_pitch == 0) plan.desc.w_pitch = desc.k;
  if (desc.y_pitch == 0) plan.desc.y_pitch = desc.n;
  if (shape.traits.matrix_unit == MatrixUnit::kMfma) {
    if (const Status status = check_mfma_pitches(plan.desc); !status.ok()) return status;
    if (desc.swap_ab == tile::SwapAb::kYes)
      return invalid_argument("GemmDesc.swap_ab is yes; allowed: auto, no (kernels of CDNA do not swap)");
  }
  const int blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  // A step of e4m3 operands has as many bytes and takes the matrix unit as long, but has twice the depth.
  const tile::TilingRequest request{.m = desc.m,
                                    .n = desc.n,
                                    .k = desc.k / plan.elements_per_word(),
                                    .dtype = desc.dtype,
                                    .kernels = kernels_of(desc, shape),
                                    .blocks = blocks,
                                    .columns = desc.tile_columns,
                                    .splits = desc.splits,
                                    .clusters = true,
                                    .rows = desc.tile_rows,
                                    .swap_ab = desc.swap_ab,
                                    .alone = true};
  const auto tiling = tile::tile_product(request, shape, "GemmDesc");
  if (!tiling.ok()) return tiling.status();
  static_cast<tile::Tiling&>(plan) = *tiling;
  return plan;
}

std::string GemmPlan::to_string() const { return fmt::format("{}: {}", kernel, Tiling::to_string()); }

}  // namespace farwarp
