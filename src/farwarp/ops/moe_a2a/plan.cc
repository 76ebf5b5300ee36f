#include "farwarp/ops/moe_a2a/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/moe_a2a/args.h"

namespace farwarp {
namespace {

using moe::kMaxEntries;
using moe::kMaxExperts;
using moe::kMaxTopK;
using moe::kThreads;

constexpr int kMaxTokens = 65535;
constexpr int kMaxSegments = 1024;
/// Up to this many bytes rows are sent as words, which need no flag. Above it rows wait for links in either mode, and
/// bulk copies keep more bytes in flight (MEASURED.md, "Words or bulk copies").
constexpr double kWordBytesOut = 20 << 20;
/// In bulk mode, above this many bytes some blocks only send in dispatch (MEASURED.md, "Segments and sending warps").
constexpr double kSendOnlyBlocksBytesOut = 16 << 20;

Status wrong(const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("MoeAllToAllDesc.{} is {}; allowed: {}", field, value, allowed));
}

Status check_scales(const MoeAllToAllDesc& desc) {
  const bool exponents = desc.scales == MoeScales::kExponentColumns;
  if (desc.scales != MoeScales::kRowMajor && desc.scales != MoeScales::kColumns && !exponents)
    return wrong("scales", static_cast<int>(desc.scales), "kRowMajor, kColumns, kExponentColumns");
  if (desc.scales != MoeScales::kRowMajor && !(desc.fp8_dispatch && desc.layout == MoeLayout::kMasked)) {
    return invalid_argument(fmt::format(
        "MoeAllToAllDesc.scales is {}; allowed: kRowMajor, or with fp8_dispatch and layout kMasked the others",
        exponents ? "kExponentColumns" : "kColumns"));
  }
  if (desc.powers_of_two && !desc.fp8_dispatch)
    return invalid_argument("MoeAllToAllDesc.powers_of_two is true; allowed: with fp8_dispatch");
  if (exponents && !desc.powers_of_two) {
    return invalid_argument(
        "MoeAllToAllDesc.scales is kExponentColumns with powers_of_two false; allowed: with powers_of_two");
  }
  if (exponents && desc.hidden % (4 * moe::kScaleGroup) != 0)
    return wrong("hidden", desc.hidden, "with scales kExponentColumns a multiple of 512");
  return {};
}

Status check(const MoeAllToAllDesc& desc, int ranks) {
  if (ranks < 1 || ranks > kMaxRanks)
    return invalid_argument(fmt::format("ranks is {}; allowed: 1 to {}", ranks, kMaxRanks));
  if (desc.num_experts < ranks || desc.num_experts > kMaxExperts) {
    return wrong("num_experts", desc.num_experts, fmt::format("ranks ({}) to {}", ranks, kMaxExperts));
  }
  if (desc.experts_per_token < 1 || desc.experts_per_token > kMaxTopK) {
    return wrong("experts_per_token", desc.experts_per_token, fmt::format("1 to {}", kMaxTopK));
  }
  if (desc.hidden < 8 || desc.hidden % 8 != 0 || desc.hidden > (1 << 20)) {
    return wrong("hidden", desc.hidden, "a multiple of 8 from 8 to 1048576");
  }
  if (desc.max_tokens < 1 || desc.max_tokens > kMaxTokens) {
    return wrong("max_tokens", desc.max_tokens, fmt::format("1 to {}", kMaxTokens));
  }
  if (static_cast<std::int64_t>(desc.max_tokens) * desc.experts_per_token > kMaxEntries) {
    return wrong("max_tokens", desc.max_tokens, fmt::format("max_tokens * experts_per_token at most {}", kMaxEntries));
  }
  if (desc.dtype != DType::kBf16 && desc.dtype != DType::kF16) {
    return invalid_argument(
        fmt::format("MoeAllToAllDesc.dtype is {}; allowed: bf16, fp16", name_or_number(desc.dtype)));
  }
  if (desc.fp8_dispatch && desc.dtype != DType::kBf16) {
    return invalid_argument(fmt::format("MoeAllToAllDesc.fp8_dispatch is true with dtype {}; allowed: with dtype bf16",
                                        name_of(desc.dtype)));
  }
  if (desc.index_type != DType::kI32 && desc.index_type != DType::kI64) {
    return invalid_argument(
        fmt::format("MoeAllToAllDesc.index_type is {}; allowed: int32, int64", name_or_number(desc.index_type)));
  }
  const bool rows = desc.layout == MoeLayout::kRows;
  if (desc.layout != MoeLayout::kExpertMajor && desc.layout != MoeLayout::kMasked && !rows)
    return wrong("layout", static_cast<int>(desc.layout), "kExpertMajor, kMasked, kRows");
  if (rows && (desc.fp8_dispatch || desc.weights_at_combine || desc.row_alignment != 1)) {
    return invalid_argument(
        "MoeAllToAllDesc.layout is kRows; allowed: kRows without fp8_dispatch, without weights_at_combine, and with "
        "row_alignment 1");
  }
  if (desc.mode != MoeMode::kAuto && desc.mode != MoeMode::kWords && desc.mode != MoeMode::kBulk)
    return wrong("mode", static_cast<int>(desc.mode), "auto, words, bulk");
  const bool of_own = desc.dispatch_hidden != 0 && rows;
  if ((desc.dispatch_hidden != 0 && !of_own) || desc.dispatch_hidden < 0 || desc.dispatch_hidden % 8 != 0 ||
      desc.dispatch_hidden > (1 << 20))
    return wrong("dispatch_hidden", desc.dispatch_hidden, "0, or with layout kRows a multiple of 8 up to 1048576");
  if (const Status scales = check_scales(desc); !scales.ok()) return scales;
  const int alignment = desc.row_alignment;
  if (alignment < 1 || alignment > 1024 || (alignment & (alignment - 1)) != 0) {
    return wrong("row_alignment", alignment, "a power of two from 1 to 1024");
  }
  if (desc.recv_rows < 0 || desc.recv_rows > std::numeric_limits<std::int32_t>::max()) {
    return wrong("recv_rows", desc.recv_rows, "0 (the worst case) to 2147483647");
  }
  if (desc.max_sms < 0) return wrong("max_sms", desc.max_sms, "0 (all) or more");
  if (desc.segments < 0 || desc.segments > kMaxSegments) {
    return wrong("segments", desc.segments, fmt::format("0 (the plan's choice) to {}", kMaxSegments));
  }
  if (desc.send_only_blocks < -1)
    return wrong("send_only_blocks", desc.send_only_blocks, "-1 (every block sends), 0 (the plan's choice) or more");
  return {};
}

/// The most rows that can arrive at one rank, with the padding of the layout.
std::int64_t worst_case_rows(const MoeAllToAllDesc& desc, int ranks, int local_experts) {
  const std::int64_t tokens = static_cast<std::int64_t>(ranks) * desc.max_tokens;
  if (desc.layout == MoeLayout::kRows) return tokens;
  if (desc.layout == MoeLayout::kMasked) {
    return (tokens + desc.row_alignment - 1) / desc.row_alignment * desc.row_alignment * local_experts;
  }
  return tokens * desc.experts_per_token + static_cast<std::int64_t>(local_experts) * (desc.row_alignment - 1);
}

/// Expected number of distinct ranks among a token's experts, if these are drawn uniformly.
double expected_ranks(const MoeAllToAllDesc& desc, int ranks) {
  return ranks * (1 - std::pow(1 - 1.0 / ranks, desc.experts_per_token));
}

/// A warp takes a segment in rounds of one vector for each lane. Returns the fewest segments of a row whose number of
/// rounds is that of `most` segments.
int segments_of_full_rounds(int vectors, int most, int warp_size) {
  const auto rounded_up = [](int n, int divisor) { return (n + divisor - 1) / divisor; };
  const int rounds = rounded_up(vectors, most * warp_size);
  return rounded_up(vectors, rounds * warp_size);
}

/// Segments of a row, so that every warp of an owner has some, each with at least one vector for each lane. In words
/// mode a segment costs only another read of the row's routes: as many as give each warp a segment of a sum, without
/// rounds that most lanes sit out. In bulk mode each segment has a fence and a flag, and small copies are slow.
/// Measured: MEASURED.md, "Segments and sending warps".
int choose_segments(const MoeAllToAllPlan& plan, int warps, int warp_size) {
  const MoeAllToAllDesc& desc = plan.desc;
  const bool words = plan.mode == MoeMode::kWords;
  const int least = desc.fp8_dispatch && !words ? moe::kFp8Align : 8 * warp_size;
  const int most = std::max(1, std::min(desc.hidden, plan.dispatch_hidden) / least);
  if (desc.segments != 0) return std::min(desc.segments, most);
  if (words) {
    const int wanted = std::clamp(plan.blocks * warps / desc.max_tokens, 1, std::min(most, 32));
    return segments_of_full_rounds(desc.hidden / 8, wanted, warp_size);
  }
  constexpr int kWorthwhile = 1024;  // least elements of a segment
  // Rows that a warp sends, and about as many that it receives.
  const double rows_per_warp = desc.max_tokens * expected_ranks(desc, plan.ranks) / (plan.blocks * warps);
  const int segments = rows_per_warp <= 0.7 ? 4 : rows_per_warp <= 2 ? 2 : 1;
  return std::clamp(segments, 1, std::clamp(desc.hidden / kWorthwhile, 1, most));
}

/// Bytes of a dispatched row in the workspace; a scale of fp8 takes `scale_bytes`.
std::int64_t row_bytes(const MoeAllToAllDesc& desc, int scale_bytes) {
  if (!desc.fp8_dispatch) return 2ll * (desc.dispatch_hidden != 0 ? desc.dispatch_hidden : desc.hidden);
  return moe::fp8_scales_at(desc.hidden) + (std::int64_t{scale_bytes} * moe::fp8_groups(desc.hidden) + 15) / 16 * 16;
}

/// Payload bytes a rank dispatches, rows for itself included, if experts are drawn uniformly: one row for each distinct
/// rank of a token.
double expected_bytes_out(const MoeAllToAllDesc& desc, int ranks) {
  return desc.max_tokens * expected_ranks(desc, ranks) * static_cast<double>(row_bytes(desc, 4));
}

MoeMode choose_mode(const MoeAllToAllDesc& desc, int ranks, std::string& why) {
  if (desc.mode != MoeMode::kAuto) {
    why = "as asked";
    return desc.mode;
  }
  const double bytes = expected_bytes_out(desc, ranks);
  const bool small = bytes <= kWordBytesOut;
  why = fmt::format("{:.0f} KiB out per rank, {} {:.0f}", bytes / 1024, small ? "at most" : "more than",
                    kWordBytesOut / 1024);
  return small ? MoeMode::kWords : MoeMode::kBulk;
}

int choose_send_only_blocks(const MoeAllToAllPlan& plan) {
  if (plan.mode != MoeMode::kBulk || plan.blocks < 2 || plan.desc.send_only_blocks < 0) return 0;
  if (plan.desc.send_only_blocks > 0) return std::min(plan.desc.send_only_blocks, plan.blocks / 2);
  const bool worth_it = expected_bytes_out(plan.desc, plan.ranks) > kSendOnlyBlocksBytesOut;
  if (!worth_it) return 0;
  if (plan.slot_bytes != 0) return std::max(1, plan.blocks * 2 / 5);
  return std::max(1, plan.blocks / (plan.desc.fp8_dispatch ? 3 : 4));  // a block that quantises takes longer
}

/// Rows in flight share the links. If all warps send at once, the first row arrives hardly before the last, and
/// meanwhile no owner can return sums; so three of eight warps send. A warp that quantises takes longer, so with fp8
/// all warps send. Not measured on AMD, where stores keep a warp busy: all warps send. Measured: MEASURED.md, "Segments
/// and sending warps".
int choose_sending_warps(const MoeAllToAllPlan& plan, int warps, const MachineShape& shape) {
  const bool some = shape.traits.bulk_copy && !plan.desc.fp8_dispatch;
  return some ? std::max(1, warps * 3 / 8) : warps;
}

/// Sets the parts of a handle. After lay_out_workspace().
void lay_out_handle(MoeAllToAllPlan& plan) {
  const auto aligned = [](std::int64_t bytes) { return (bytes + 15) / 16 * 16; };
  plan.handle_bytes = aligned(plan.kept_bytes);
  if (plan.desc.layout != MoeLayout::kMasked) return;
  plan.handle_ranges = plan.handle_bytes;
  plan.handle_tokens = aligned(plan.handle_ranges + 8ll * plan.max_local_experts * plan.ranks);
  plan.handle_bytes = aligned(plan.handle_tokens + 4 * plan.recv_rows);
}

/// Sets `workspace` and `kept_bytes`.
void lay_out_workspace(MoeAllToAllPlan& plan) {
  const MoeAllToAllDesc& desc = plan.desc;
  const bool words = plan.mode == MoeMode::kWords;
  const std::int64_t pairs = 2ll * plan.ranks;
  const std::int64_t rows = pairs * desc.max_tokens;
  MoeWorkspace& workspace = plan.workspace;
  const auto take = [&workspace](std::int64_t bytes) {
    const std::int64_t start = workspace.total;
    workspace.total = (workspace.total + bytes + 255) / 256 * 256;
    return start;
  };
  workspace.headers = take(pairs * plan.header_packets * 16);
  workspace.routes = take(rows * desc.experts_per_token * 16);
  const bool returns_weights = desc.handles && desc.layout == MoeLayout::kRows;
  if (desc.weights_at_combine || returns_weights) workspace.combine_weights = take(rows * desc.experts_per_token * 16);
  if (!words) workspace.rows = take(rows * plan.row_bytes);
  if (plan.slot_bytes != 0) workspace.return_flags = take(rows * plan.segments * 8);
  workspace.row_flags = take(words ? 0 : rows * plan.segments * 8);
  plan.kept_bytes = moe::kKeptRowsAt + rows / 2 * (plan.slot_bytes != 0 ? 4 : (1 + desc.experts_per_token) * 8);
  workspace.kept = take(plan.kept_bytes);
  if (desc.handles) workspace.discarded = take(4ll * (2 * plan.max_local_experts + plan.ranks + 2));
  workspace.words_begin = workspace.total;
  if (words) workspace.rows = take(rows * plan.row_bytes);
  workspace.returns = take(rows * 2ll * desc.hidden);
}

}  // namespace

const char* name_of(MoeMode mode) {
  switch (mode) {
    case MoeMode::kAuto: return "auto";
    case MoeMode::kWords: return "words";
    case MoeMode::kBulk: return "bulk";
  }
  return "?";
}

Result<MoeAllToAllPlan> plan_moe_all_to_all(const MoeAllToAllDesc& desc, const MachineShape& shape, int ranks) {
  if (const Status status = check(desc, ranks); !status.ok()) return status;
  MoeAllToAllPlan plan;
  plan.desc = desc;
  plan.ranks = ranks;
  plan.mode = choose_mode(desc, ranks, plan.why_mode);
  plan.fp8 = shape.traits.fp8;
  plan.threads = kThreads;
  plan.blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  plan.max_local_experts = (desc.num_experts + ranks - 1) / ranks;
  plan.header_packets = moe::num_bitmaps(desc.max_tokens) + (plan.max_local_experts + 1) / 2;
  const std::int64_t rows = worst_case_rows(desc, ranks, plan.max_local_experts);
  plan.recv_rows = desc.recv_rows != 0 ? desc.recv_rows : rows;
  if (plan.recv_rows > std::numeric_limits<std::int32_t>::max()) {
    return wrong("max_tokens", desc.max_tokens,
                 fmt::format("a worst case of at most 2147483647 received rows; this is {}", rows));
  }
  const std::int64_t room = plan.recv_rows / plan.max_local_experts;
  if (desc.layout == MoeLayout::kMasked && room % desc.row_alignment != 0) {
    return wrong("recv_rows", desc.recv_rows,
                 fmt::format("in the masked layout, a multiple of row_alignment ({}) for each of {} experts",
                             desc.row_alignment, plan.max_local_experts));
  }
  plan.dispatch_hidden = desc.dispatch_hidden != 0 ? desc.dispatch_hidden : desc.hidden;
  const int warps = plan.threads / shape.traits.warp_size;
  plan.segments = choose_segments(plan, warps, shape.traits.warp_size);
  plan.sending_warps = choose_sending_warps(plan, warps, shape);
  const moe::LaunchMemory memory = moe::launch_memory(plan, shape.traits);
  plan.shared_bytes = memory.total;
  plan.slot_bytes = memory.rings.slot_bytes;
  if (plan.slot_bytes != 0) plan.returning_warps = warps / 2;
  plan.send_only_blocks = choose_send_only_blocks(plan);
  if (plan.shared_bytes > shape.traits.shared_bytes) {
    return invalid_argument(
        fmt::format("MoeAllToAllDesc.num_experts is {} and max_tokens {}; allowed: what fits into {} bytes of shared "
                    "memory; this needs {}",
                    desc.num_experts, desc.max_tokens, shape.traits.shared_bytes, plan.shared_bytes));
  }
  plan.row_bytes = row_bytes(desc, plan.mode == MoeMode::kWords ? 8 : 4);
  lay_out_workspace(plan);
  if (desc.handles) lay_out_handle(plan);
  plan.configuration =
      hash_of({desc.num_experts, desc.experts_per_token, desc.hidden, desc.max_tokens, static_cast<int>(desc.dtype),
               desc.fp8_dispatch, static_cast<int>(plan.fp8), ranks, static_cast<int>(plan.mode), plan.blocks,
               plan.segments, plan.send_only_blocks, plan.threads, plan.workspace.total, desc.weights_at_combine,
               desc.layout == MoeLayout::kRows, plan.dispatch_hidden, desc.powers_of_two, desc.handles});
  return plan;
}

std::string MoeAllToAllPlan::to_string() const {
  return fmt::format(
      "moe-a2a {} experts, top-{}, hidden {}, {} tokens, {} ranks, {}{}: {} mode ({}), {} blocks of {}, {} send "
      "(fused: {} "
      "warps of each), {} segments, {} bytes of shared memory, workspace {} bytes, {} receive rows",
      desc.num_experts, desc.experts_per_token, desc.hidden, desc.max_tokens, ranks, name_of(desc.dtype),
      desc.fp8_dispatch ? " dispatched as fp8" : "", name_of(mode), why_mode, blocks, threads,
      send_only_blocks > 0 ? fmt::format("{}", send_only_blocks) : "all", sending_warps, segments, shared_bytes,
      workspace.total, recv_rows);
}

}  // namespace farwarp
