#include "farwarp/ops/flash_decode/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/flash_decode/layout.h"
#include "farwarp/ops/flash_decode/schedule.h"
#include "farwarp/ops/flash_decode/variants.h"

namespace farwarp {
namespace {

using decode::kStageKeys;

constexpr int kMaxBatch = 4096, kMaxKeys = 1 << 24, kMaxTokens = 8, kMaxHeads = 256;
constexpr float kMaxScale = 2e38f;  // times log2(e) it is finite
constexpr std::int64_t kMaxHeapBytes = std::int64_t{1} << 34;

/// About as many splits of all items of one long sequence as a large machine has multiprocessors. It is a constant,
/// because results may not depend on the machine.
constexpr int kSplitsOfSequence = 128;

/// A work may have more stages than a block's share: a block that is late has more of the memory's rate (MEASURED.md,
/// "Works").
constexpr float kShares = 1.4f;

Status wrong(const char* field, const std::string& value, const std::string& allowed) {
  return invalid_argument(fmt::format("FlashDecodeDesc.{} is {}; allowed: {}", field, value, allowed));
}
Status wrong(const char* field, std::int64_t value, const std::string& allowed) {
  return wrong(field, std::to_string(value), allowed);
}
Status check_range(const char* field, int value, int least, int most) {
  if (value < least || value > most) return wrong(field, value, fmt::format("{} to {}", least, most));
  return {};
}

Status check_cache(const FlashDecodeDesc& desc) {
  if (desc.page_size != 1 && desc.page_size != 16 && desc.page_size != 64 && desc.page_size != 128)
    return wrong("page_size", desc.page_size, "1, 16, 64, 128");
  if (desc.pages < 1) return wrong("pages", desc.pages, "1 or more");
  if (desc.max_pages < 1 || desc.max_pages > kMaxKeys / desc.page_size)
    return wrong("max_pages", desc.max_pages, fmt::format("1 to {} of this size", kMaxKeys / desc.page_size));
  if (desc.dtype != DType::kBf16 && desc.dtype != DType::kF16)
    return wrong("dtype", name_or_number(desc.dtype), "bf16, fp16");
  if (desc.kv_dtype != KvDType::kSame && desc.kv_dtype != KvDType::kFp8)
    return wrong("kv_dtype", name_or_number(desc.kv_dtype), "same, fp8");
  if (desc.layout != KvLayout::kTokensFirst && desc.layout != KvLayout::kHeadsFirst)
    return wrong("layout", name_or_number(desc.layout), "nhd, hnd");
  const int step = desc.kv_dtype == KvDType::kFp8 ? 16 : 8;
  if (desc.head_dim < step || desc.head_dim > 128 || desc.head_dim % step != 0)
    return wrong("head_dim", desc.head_dim, fmt::format("a multiple of {} up to 128", step));
  return {};
}

Status check_shards(const FlashDecodeDesc& desc, int ranks) {
  if (desc.kv_shards != 1 && desc.kv_shards != ranks)
    return wrong("kv_shards", desc.kv_shards, fmt::format("1, or {}, the World's size", ranks));
  if (desc.exchange != DecodeExchange::kBest && desc.exchange != DecodeExchange::kOneShot &&
      desc.exchange != DecodeExchange::kTwoShot)
    return wrong("exchange", name_or_number(desc.exchange), "best, one-shot, two-shot");
  if (desc.kv_shards == 1) return {};
  if (desc.query_tokens != 1) return wrong("query_tokens", desc.query_tokens, "1 with kv_shards > 1");
  if (desc.window != 0) return wrong("window", desc.window, "0 with kv_shards > 1");
  return {};
}

Status check(const FlashDecodeDesc& desc, int ranks) {
  Status status = first_failure({check_range("batch", desc.batch, 1, kMaxBatch),
                                 check_range("query_tokens", desc.query_tokens, 1, kMaxTokens),
                                 check_range("kv_heads", desc.kv_heads, 1, kMaxHeads), check_cache(desc),
                                 check_range("window", desc.window, 0, kMaxKeys), check_shards(desc, ranks)});
  if (!status.ok()) return status;
  if (desc.query_heads < desc.kv_heads || desc.query_heads > 16 * kMaxHeads || desc.query_heads % desc.kv_heads != 0)
    return wrong("query_heads", desc.query_heads,
                 fmt::format("a multiple of kv_heads ({}) up to {}", desc.kv_heads, 16 * kMaxHeads));
  if (!(desc.scale >= 0 && desc.scale <= kMaxScale))
    return wrong("scale", fmt::format("{}", desc.scale), fmt::format("0 (head_dim^-0.5) or up to {}", kMaxScale));
  if (desc.split_keys < 0 || desc.split_keys % kStageKeys != 0)
    return wrong("split_keys", desc.split_keys, fmt::format("0 (by length) or a multiple of {}", kStageKeys));
  if (name_of(desc.work) == "?") return wrong("work", name_or_number(desc.work), "best, split, group, all");
  if (desc.max_sms < 0) return wrong("max_sms", desc.max_sms, "0 (all) or more");
  return {};
}

std::int64_t aligned(std::int64_t bytes) { return (bytes + 127) / 128 * 128; }

/// One-shot saves the second latency, about 1 us, and sends ranks times as much. 8 ranks send 64 KB to each peer in
/// about 1.5 us.
DecodeExchange choose_exchange(const FlashDecodePlan& plan) {
  const std::int64_t row_slots = std::int64_t{plan.items} * plan.item_rows;
  return row_slots * (plan.dim * 4 + 16) <= 64 << 10 ? DecodeExchange::kOneShot : DecodeExchange::kTwoShot;
}

void lay_out_inbox(FlashDecodePlan& plan) {
  const std::int64_t ranks = plan.desc.kv_shards, row_slots = std::int64_t{plan.items} * plan.item_rows;
  const bool two_shot = plan.desc.exchange == DecodeExchange::kTwoShot;
  const std::int64_t merged = two_shot ? (row_slots + ranks - 1) / ranks : row_slots;
  const std::int64_t vectors = plan.dim / 4 + 1;
  plan.finished = aligned(2 * ranks * merged * vectors * 16);
  plan.inbox_bytes = plan.finished + (two_shot ? aligned(2 * row_slots * vectors * 8) : 0);
}

void choose_kernel(FlashDecodePlan& plan, bool wgmma) {
  const FlashDecodeDesc& desc = plan.desc;
  const bool fp8 = desc.kv_dtype == KvDType::kFp8;
  for (const decode::Variant& kernel :
       wgmma ? std::span<const decode::Variant>(decode::kWgmmaKernels) : decode::kMfmaKernels) {
    if (kernel.dtype != desc.dtype || kernel.dim != plan.dim || kernel.fp8 != fp8) continue;
    if (kernel.rows != plan.block_rows) continue;
    if (wgmma && (kernel.source == decode::Source::kRows) != (desc.page_size == 1)) continue;
    plan.kernel = kernel.name;
    const decode::DecodeShared shared{kernel.dim, kernel.rows, kernel.source, fp8};
    plan.shared_bytes = wgmma ? shared.total() : decode::DecodeMfmaShared{kernel.dim}.total();
  }
  plan.threads = wgmma ? decode::kThreads : decode::kMfmaThreads;
}

/// Most splits of a sequence of at most `stages` stages, cut by length. The number is not monotone: rounding to whole
/// chunks may give a shorter sequence more splits.
int most_splits_up_to(int stages, int target) {
  const auto cut_by = [stages](int chunk) { return std::max(1, (stages + chunk - 1) / chunk); };
  if (stages <= decode::kUsualSplitStages * target) return std::min(target, cut_by(decode::kLeastSplitStages));
  return std::min(decode::kMoreSplits * target, cut_by(decode::kUsualSplitStages));
}

}  // namespace

Result<FlashDecodePlan> plan_flash_decode(const FlashDecodeDesc& desc, const MachineShape& shape, int ranks) {
  if (const Status status = check(desc, ranks); !status.ok()) return status;
  const bool wgmma = shape.traits.matrix_unit == MatrixUnit::kWgmma;
  FlashDecodePlan plan;
  plan.desc = desc;
  if (desc.scale == 0) plan.desc.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(desc.head_dim)));
  plan.dim = desc.head_dim <= 64 ? 64 : 128;
  plan.rows = desc.query_tokens * (desc.query_heads / desc.kv_heads);
  plan.block_rows = wgmma ? decode::block_rows_for(plan.rows) : decode::kMfmaItemRows;
  plan.item_rows = std::min(plan.rows, plan.block_rows);
  plan.row_blocks = (plan.rows + plan.block_rows - 1) / plan.block_rows;
  plan.items = desc.batch * desc.kv_heads * plan.row_blocks;
  plan.target_splits = std::clamp(kSplitsOfSequence / (desc.kv_heads * plan.row_blocks), 4, 64);
  choose_kernel(plan, wgmma);
  const int most_keys = desc.max_pages * desc.page_size;
  const decode::SplitRule rule{desc.query_tokens, desc.window, Divisor(plan.target_splits),
                               desc.split_keys / kStageKeys};
  // With a window a sequence's keys begin anywhere in a stage, so the longest sequence need not have the most stages.
  const int most_visible =
      desc.window == 0 ? most_keys : std::min(most_keys, desc.window + desc.query_tokens + kStageKeys);
  const decode::SequenceSplits longest = decode::SplitRule{1, 0, rule.target, rule.fixed_stages}.of(most_visible);
  plan.most_splits = longest.splits;
  if (desc.split_keys == 0) plan.most_splits = most_splits_up_to(longest.stages, plan.target_splits);
  if (plan.most_splits > decode::kMaxSplits)
    return wrong("split_keys", desc.split_keys,
                 fmt::format("0, or a multiple of {} that cuts {} keys into {} splits at most", kStageKeys,
                             most_visible, decode::kMaxSplits));
  const int most_blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  plan.blocks = static_cast<int>(std::min<std::int64_t>(most_blocks, std::int64_t{plan.items} * plan.most_splits));
  plan.share_factor =
      kShares * static_cast<float>(desc.kv_heads * plan.row_blocks) / static_cast<float>(plan.blocks * kStageKeys);
  const bool any_work = wgmma && plan.item_rows <= decode::kGroupRows;
  if (!any_work && desc.work != DecodeWork::kBest && desc.work != DecodeWork::kSplit)
    return wrong(
        "work", name_or_number(desc.work),
        fmt::format("best, split; group and all on Hopper, if an item has at most {} rows", decode::kGroupRows));
  if (!any_work) plan.desc.work = DecodeWork::kSplit;
  const std::int64_t partial_rows = std::int64_t{plan.items} * plan.most_splits * plan.item_rows;
  plan.statistics = aligned(partial_rows * plan.dim * 4);
  plan.workspace_bytes = plan.statistics + aligned(partial_rows * 8);
  plan.counter_bytes = std::int64_t{plan.items} * 4;
  if (desc.kv_shards > 1) {
    if (desc.exchange == DecodeExchange::kBest) plan.desc.exchange = choose_exchange(plan);
    lay_out_inbox(plan);
  }
  if (plan.workspace_bytes + plan.inbox_bytes > kMaxHeapBytes)
    return wrong("batch", desc.batch,
                 fmt::format("so many that partial outputs take {} bytes at most; they would take {}", kMaxHeapBytes,
                             plan.workspace_bytes + plan.inbox_bytes));
  return plan;
}

std::string FlashDecodePlan::to_string() const {
  const std::string exchange =
      desc.kv_shards == 1 ? "" : fmt::format(", {} over {} ranks", name_of(desc.exchange), desc.kv_shards);
  const std::string works = desc.work == DecodeWork::kAll     ? ", in works of all"
                            : desc.work == DecodeWork::kGroup ? ", in works of four"
                                                              : "";
  return fmt::format("{}: {} items of {} rows, up to {} splits{}, {} blocks{}", kernel, items, item_rows, most_splits,
                     works, blocks, exchange);
}

}  // namespace farwarp
