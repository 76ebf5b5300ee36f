#include "farwarp/ops/attention/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/attention/args.h"
#include "farwarp/ops/attention/best_mapping.h"
#include "farwarp/ops/attention/shape_mfma.h"
#include "farwarp/ops/attention/shape_wgmma.h"
#include "farwarp/ops/attention/variants.h"

namespace farwarp {
namespace {

using attention::kUnlimited;
using attention::Variant;

constexpr int kMaxRows = 1 << 26;  // of a tensor; a count of keys and a query's number can be added
constexpr int kMaxHeads = 1 << 12;
constexpr int kMaxBatch = 1 << 16;
constexpr float kMaxScale = 2e38f;  // times log2(e) it is finite
constexpr float kMinSoftcap = 0.001f, kMaxSoftcap = 1e6f;
constexpr float kMaxScaleOverCap = 1e30f;

Status wrong(const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("AttentionDesc.{} is {}; allowed: {}", field, value, allowed));
}

Status check_range(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) return wrong(field, value, fmt::format("{} to {}", least, most));
  return {};
}

Status check_pitch(const char* field, std::int64_t pitch, std::int64_t least) {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;  // a tensor copy takes strides below 2^40 bytes
  if (pitch != 0 && (pitch < least || pitch % 8 != 0 || pitch > kMost))
    return wrong(field, pitch, fmt::format("0, or a multiple of 8 from {} to {}", least, kMost));
  return {};
}

Status check_pages(const AttentionDesc& desc) {
  if (desc.page_size == 0) {
    if (desc.pages != 0) return wrong("pages", desc.pages, "0 if page_size is 0");
    return {};
  }
  const bool has_size = desc.page_size == 16 || desc.page_size == 32 || desc.page_size == 64 ||
                        (desc.page_size > 0 && desc.page_size % 128 == 0 && desc.page_size <= 1 << 16);
  if (!has_size)
    return wrong("page_size", desc.page_size, "0 (not paged), 16, 32, 64, or a multiple of 128 up to 65536");
  if (desc.ragged_keys) return wrong("ragged_keys", 1, "0 if k and v are paged");
  return check_range("pages", desc.pages, 1, kMaxRows);
}

Status check_sizes(const AttentionDesc& desc) {
  return first_failure(
      {check_range("batch", desc.batch, 1, kMaxBatch), check_range("heads", desc.heads, 1, kMaxHeads),
       check_range("kv_heads", desc.kv_heads, 1, kMaxHeads), check_range("max_queries", desc.max_queries, 1, kMaxRows),
       check_range("max_keys", desc.max_keys, 1, kMaxRows), check_range("window_left", desc.window_left, -1, kMaxRows),
       check_range("window_right", desc.window_right, -1, kMaxRows), check_range("max_sms", desc.max_sms, 0, 1 << 16),
       desc.ragged_queries ? check_range("total_queries", desc.total_queries, 1, kMaxRows)
                           : check_range("total_queries", desc.total_queries, 0, 0),
       desc.ragged_keys ? check_range("total_keys", desc.total_keys, 1, kMaxRows)
                        : check_range("total_keys", desc.total_keys, 0, 0)});
}

Status check(const AttentionDesc& desc) {
  if (const Status sizes = check_sizes(desc); !sizes.ok()) return sizes;
  if (desc.heads % desc.kv_heads != 0)
    return wrong("kv_heads", desc.kv_heads, fmt::format("a divisor of heads ({})", desc.heads));
  if (desc.head_dim < 8 || desc.head_dim > 256 || desc.head_dim % 8 != 0)
    return wrong("head_dim", desc.head_dim, "a multiple of 8 up to 256; there is no kernel for wider heads");
  if (desc.dtype != DType::kBf16 && desc.dtype != DType::kF16)
    return invalid_argument(fmt::format("AttentionDesc.dtype is {}; allowed: bf16, fp16", name_or_number(desc.dtype)));
  if (desc.causal && desc.window_right > 0) return wrong("window_right", desc.window_right, "-1 or 0 if causal");
  if (!(desc.scale >= 0 && desc.scale <= kMaxScale))
    return invalid_argument(
        fmt::format("AttentionDesc.scale is {}; allowed: 0 (1 / sqrt(head_dim)) or up to {}", desc.scale, kMaxScale));
  if (desc.softcap != 0 && !(desc.softcap >= kMinSoftcap && desc.softcap <= kMaxSoftcap))
    return invalid_argument(fmt::format("AttentionDesc.softcap is {}; allowed: 0 (none), or {:g} to {:g}", desc.softcap,
                                        kMinSoftcap, kMaxSoftcap));
  if (desc.softcap > 0 && desc.scale > kMaxScaleOverCap * desc.softcap)
    return invalid_argument(fmt::format("AttentionDesc.scale is {}; allowed: up to {:g} * softcap ({})", desc.scale,
                                        kMaxScaleOverCap, desc.softcap));
  if (const std::int64_t works = std::int64_t{desc.batch} * desc.heads * ((desc.max_queries + 15) / 16);
      works >= 1 << 30)
    return wrong("batch", desc.batch, "batch * heads * max_queries / 16 below 2^30");
  const std::int64_t q_row = std::int64_t{desc.heads} * desc.head_dim,
                     kv_row = std::int64_t{desc.kv_heads} * desc.head_dim;
  return first_failure({check_pages(desc), check_pitch("q_pitch", desc.q_pitch, q_row),
                        check_pitch("k_pitch", desc.k_pitch, kv_row), check_pitch("v_pitch", desc.v_pitch, kv_row),
                        check_pitch("out_pitch", desc.out_pitch, q_row)});
}

/// The descriptor with defaults replaced by what they stand for.
AttentionDesc filled_in(AttentionDesc desc) {
  const std::int64_t q_row = std::int64_t{desc.heads} * desc.head_dim,
                     kv_row = std::int64_t{desc.kv_heads} * desc.head_dim;
  if (desc.q_pitch == 0) desc.q_pitch = q_row;
  if (desc.k_pitch == 0) desc.k_pitch = kv_row;
  if (desc.v_pitch == 0) desc.v_pitch = kv_row;
  if (desc.out_pitch == 0) desc.out_pitch = q_row;
  if (desc.causal) desc.window_right = 0;
  if (desc.window_left < 0) desc.window_left = kUnlimited;
  if (desc.window_right < 0) desc.window_right = kUnlimited;
  if (desc.scale == 0) desc.scale = 1 / std::sqrt(static_cast<float>(desc.head_dim));
  if (desc.page_size > 0) desc.has_key_counts = true;
  return desc;
}

/// A CDNA kernel computes offsets between a wave's rows in 32 bits.
Status check_mfma(const AttentionDesc& desc) {
  if (desc.head_dim > 128) return wrong("head_dim", desc.head_dim, "a multiple of 8 up to 128 here");
  if (desc.softcap != 0)
    return invalid_argument(fmt::format("AttentionDesc.softcap is {}; allowed: 0 here", desc.softcap));
  for (const auto& [field, pitch] : {std::pair{"q_pitch", desc.q_pitch}, std::pair{"k_pitch", desc.k_pitch},
                                     std::pair{"v_pitch", desc.v_pitch}, std::pair{"out_pitch", desc.out_pitch}}) {
    if (pitch > attention::kMfmaMostPitch)
      return wrong(field, pitch, fmt::format("at most {} here", attention::kMfmaMostPitch));
  }
  return {};
}

/// `kernels`: of the matrix unit. The one that pads the head least.
const Variant* choose_kernel(const AttentionDesc& desc, std::span<const Variant> kernels) {
  const Variant* best = nullptr;
  for (const Variant& kernel : kernels) {
    if (kernel.dtype != desc.dtype || kernel.head_dim < desc.head_dim) continue;
    if (kernel.capped != (desc.softcap > 0)) continue;
    if (best == nullptr || kernel.head_dim < best->head_dim) best = &kernel;
  }
  return best;
}

/// By the simulated caches of an MI300X; it stands for every machine with XCDs.
attention::Mapping mapping_for(const AttentionPlan& plan, const MachineShape& shape) {
  const AttentionDesc& desc = plan.desc;
  auto machine = find_cache_machine("mi300x");
  if (!machine.ok()) return desc.mapping;
  machine->xcds = shape.xcds;
  const attention::PrefillShape prefill{.batch = desc.batch,
                                        .heads = desc.heads,
                                        .kv_heads = desc.kv_heads,
                                        .seq_q = desc.max_queries,
                                        .seq_k = desc.max_keys,
                                        .head_dim = desc.head_dim,
                                        .block_m = plan.block_queries,
                                        .block_n = plan.step_keys,
                                        .causal = desc.window_right == 0};
  const auto best = attention::best_mapping(*machine, prefill, plan.folded);
  return best.ok() ? *best : desc.mapping;
}

/// Works of one head after the other are kept in the L2, but if works are unequal, blocks end together only if the
/// longest works of many heads come first. So sections have as many heads as their keys and values fit into a part of
/// the L2 (the rule of FlashAttention-3's scheduler, 32 MB).
int section_of(const AttentionDesc& desc) {
  constexpr std::int64_t kMostBytes = 32 << 20;
  const std::int64_t of_head = std::int64_t{desc.max_keys} * desc.head_dim * 2 * bytes_of(desc.dtype);
  int most = 1;
  for (int kv_heads = 1; kv_heads <= desc.kv_heads; ++kv_heads)
    if (desc.kv_heads % kv_heads == 0 && kv_heads * of_head <= kMostBytes) most = kv_heads;
  return most * (desc.heads / desc.kv_heads);
}

}  // namespace

Result<AttentionPlan> plan_attention(const AttentionDesc& wanted, const MachineShape& shape) {
  if (const Status status = check(wanted); !status.ok()) return status;
  AttentionPlan plan;
  plan.desc = filled_in(wanted);
  const AttentionDesc& desc = plan.desc;
  const bool mfma = shape.traits.matrix_unit == MatrixUnit::kMfma;
  if (mfma) {
    if (const Status status = check_mfma(desc); !status.ok()) return status;
  }
  const Variant* const kernel = choose_kernel(desc, mfma ? std::span<const Variant>(attention::kMfmaKernels)
                                                         : std::span<const Variant>(attention::kWgmmaKernels));
  plan.kernel = kernel->name;
  plan.step_keys = kernel->keys;
  plan.threads = mfma ? attention::kMfmaThreads : attention::wgmma_threads(kernel->warpgroups);
  plan.block_queries = mfma ? attention::kMfmaQueries : attention::wgmma_queries(kernel->warpgroups);
  plan.shared_bytes = mfma ? attention::MfmaShared{kernel->head_dim, kernel->keys}.total()
                           : attention::WgmmaShared{kernel->head_dim, kernel->keys, kernel->warpgroups}.total();
  plan.folded = desc.window_right < kUnlimited;
  if (desc.choose_mapping && shape.xcds > 1) plan.desc.mapping = mapping_for(plan, shape);
  if (desc.choose_mapping && shape.xcds == 1 && plan.folded) plan.section = section_of(desc);
  int blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  // CDNA's blocks compute every n-th work. With a multiple of the XCDs, an XCD's blocks compute the works that the
  // mapping gives it.
  if (mfma && blocks > shape.xcds) blocks -= blocks % shape.xcds;
  plan.blocks = std::min(blocks, plan.grid(shape).works);
  plan.workspace_bytes = 16;  // the counter of claims
  return plan;
}

attention::WorkGrid AttentionPlan::grid(const MachineShape& shape) const {
  return attention::work_grid(desc.mapping, folded, desc.batch, desc.heads,
                              (desc.max_queries + block_queries - 1) / block_queries, shape.xcds, section);
}

int AttentionPlan::table_pitch() const {
  return desc.page_size == 0 ? 0 : (desc.max_keys + desc.page_size - 1) / desc.page_size;
}

std::string AttentionPlan::to_string() const {
  return fmt::format("{}: {} blocks of {} queries, steps of {} keys, {}{}{}", kernel, blocks, block_queries, step_keys,
                     attention::name_of(desc.mapping), folded ? ", folded" : "",
                     section > 1 ? fmt::format(", sections of {} heads", section) : "");
}

}  // namespace farwarp
