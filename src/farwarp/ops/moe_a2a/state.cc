#include "farwarp/ops/moe_a2a/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farwarp/base/arguments.h"

namespace farwarp {

using moe::KernelId;
using enum moe::KernelId;
using moe::kBothHalves;
using moe::kIdle;
using moe::kReceived;
using moe::kReceiveHalf;
using moe::kReturning;
using moe::kSendHalf;
using moe::kSent;

namespace moe {
namespace {

/// `split`: of dispatch, which delivers scales.
moe::Wire wire_of(const MoeAllToAllPlan& plan, bool split) {
  using enum moe::Wire;
  const bool words = plan.mode == MoeMode::kWords;
  if (!plan.desc.fp8_dispatch) return words ? Words : Bulk;
  if (split && plan.desc.scales != MoeScales::kRowMajor) return words ? Fp8WordsColumns : Fp8BulkColumns;
  return words ? Fp8Words : Fp8Bulk;
}

/// Which blocks and warps send and receive in a launch of `blocks` blocks.
moe::Roles roles_of(const MoeAllToAllPlan& plan, KernelId id, std::int32_t halves, int blocks, int warps) {
  if (plan.send_only_blocks > 0 && id == kDispatch && halves == kBothHalves) {
    return {.sending_blocks = plan.send_only_blocks,
            .sending_warps = warps,
            .workers = blocks - plan.send_only_blocks,
            .first_worker = plan.send_only_blocks};
  }
  const bool fused = std::ranges::find(kFusedExperts, id, &FusedExpert::kernel) != std::end(kFusedExperts);
  const bool returns = id == kCombine && halves == kBothHalves && plan.returning_warps > 0;
  return {.sending_blocks = blocks,
          .sending_warps = fused     ? plan.sending_warps
                           : returns ? plan.returning_warps
                                     : warps,
          .workers = blocks,
          .first_worker = 0};
}

Status check_rows(const MoeReceived& received, const MoeAllToAllPlan& plan, bool counted) {
  if (received.rows < -1 || received.rows > plan.recv_rows)
    return invalid_argument(
        fmt::format("MoeReceived.rows is {}; allowed: -1 (all) to {}", received.rows, plan.recv_rows));
  const bool none = received.counts == nullptr && received.offsets == nullptr;
  Status status = counted && none ? Status() : check_counts({received.counts, received.offsets});
  if (received.rows == 0) return status;  // empty tensors may have no address
  const auto index_bytes = static_cast<int>(bytes_of(plan.desc.index_type));
  if (status.ok()) status = check_pointer("MoeReceived.x", received.x, 16);
  if (status.ok()) status = check_pointer("MoeReceived.topk_indices", received.topk_indices, index_bytes);
  if (status.ok()) status = check_pointer("MoeReceived.topk_weights", received.topk_weights, 4);
  if (status.ok() && received.origins != nullptr) status = check_pointer("MoeReceived.origins", received.origins, 8);
  return status;
}

/// Weights are given either to dispatch or to combine.
Status check_weights(const char* name, const float* weights, bool wanted) {
  if (wanted) return check_pointer(name, weights, 4);
  if (weights == nullptr) return {};
  return invalid_argument(fmt::format(
      "{} is given; allowed: null (with MoeAllToAllDesc.weights_at_combine combine takes the weights, else dispatch)",
      name));
}

}  // namespace

std::string kernel_name(KernelId id, const MoeAllToAllPlan& plan) {
  const moe::Wire wire = wire_of(plan, id == kDispatch);
  const MoeAllToAllDesc& desc = plan.desc;
  for (const moe::Variant& kernel : moe::kVariants) {
    if (kernel.id == id && kernel.wire.value_or(wire) == wire && kernel.dtype.value_or(desc.dtype) == desc.dtype &&
        kernel.weights_at_combine.value_or(desc.weights_at_combine) == desc.weights_at_combine &&
        kernel.rows.value_or(desc.layout == MoeLayout::kRows) == (desc.layout == MoeLayout::kRows)) {
      return kernel.name;
    }
  }
  return {};
}

Status check_counts(const MoeCounts& counts) {
  return first_failure(
      {check_pointer("MoeCounts.counts", counts.counts, 4), check_pointer("MoeCounts.offsets", counts.offsets, 4)});
}

Status check_received(const MoeReceived& received, const MoeAllToAllPlan& plan, bool counted) {
  const bool fp8 = plan.desc.fp8_dispatch, rows = plan.desc.layout == MoeLayout::kRows;
  if (rows && received.count_sums != nullptr)
    return invalid_argument("MoeReceived.count_sums is given; allowed: null, as MoeAllToAllDesc.layout is kRows");
  if (plan.desc.handles) {
    if (Status handle = check_pointer("MoeReceived.handle", received.handle, 16); !handle.ok()) return handle;
  } else if (received.handle != nullptr) {
    return invalid_argument("MoeReceived.handle is given; allowed: null, as MoeAllToAllDesc.handles is false");
  }
  if (rows) return check_rows(received, plan, counted);
  Status status = check_pointer("MoeReceived.x", received.x, 16);
  if (status.ok()) status = check_pointer("MoeReceived.counts", received.counts, 4);
  if (status.ok()) status = check_pointer("MoeReceived.offsets", received.offsets, 4);
  if (status.ok() && fp8) status = check_pointer("MoeReceived.scales", received.scales, 4);
  if (status.ok() && received.count_sums != nullptr)
    status = check_pointer("MoeReceived.count_sums", received.count_sums, 4);
  if (status.ok() && received.origins != nullptr) status = check_pointer("MoeReceived.origins", received.origins, 8);
  return status;
}

}  // namespace moe

Status MoeAllToAll::State::check_tokens(const MoeTokens& tokens) const {
  if (tokens.tokens_on_device == nullptr && (tokens.tokens < 0 || tokens.tokens > plan.desc.max_tokens)) {
    return invalid_argument(
        fmt::format("MoeTokens.tokens is {}; allowed: 0 to {}", tokens.tokens, plan.desc.max_tokens));
  }
  if (tokens.expert_counts != nullptr && plan.desc.layout != MoeLayout::kRows)
    return invalid_argument("MoeTokens.expert_counts is given; allowed: null, as MoeAllToAllDesc.layout is not kRows");
  if (tokens.tokens_on_device != nullptr && plan.desc.handles)
    return invalid_argument("MoeTokens.tokens_on_device is given; allowed: null, as MoeAllToAllDesc.handles is true");
  if (tokens.tokens_on_device == nullptr && tokens.tokens == 0) return {};
  const auto index_bytes = static_cast<int>(bytes_of(plan.desc.index_type));
  return first_failure(
      {check_pointer("MoeTokens.x", tokens.x, 16),
       check_pointer("MoeTokens.topk_indices", tokens.topk_indices, index_bytes),
       moe::check_weights("MoeTokens.topk_weights", tokens.topk_weights, !plan.desc.weights_at_combine)});
}

Status MoeAllToAll::State::check_y(const void* y, const MoeHandle* handle) const {
  const std::int64_t rows = handle == nullptr ? args.dispatch.recv_rows : handle->rows;
  if (plan.desc.layout == MoeLayout::kRows && rows == 0) return {};  // an empty tensor may have no address
  return check_pointer("y", y, 16);
}

bool MoeAllToAll::State::has_no_tokens(const MoeHandle* handle) const {
  return handle != nullptr ? handle->tokens == 0 : args.tokens.on_device == nullptr && args.tokens.count == 0;
}

Status MoeAllToAll::State::check_combine_weights(const float* weights, const MoeHandle* handle) const {
  if (has_no_tokens(handle) && weights == nullptr) return {};  // an empty tensor may have no address
  return moe::check_weights("topk_weights", weights, plan.desc.weights_at_combine);
}

Status MoeAllToAll::State::check_phase(std::uint32_t phase) const {
  const bool weights_return = plan.desc.handles && plan.desc.layout == MoeLayout::kRows;
  const char* const names[] = {
      "dispatch, dispatch_send or fused", "dispatch_recv",
      weights_return ? "combine, combine_send or return_row_weights" : "combine or combine_send", "combine_recv"};
  if (phase == next_phase || (phase == kIdle && next_phase == kReceived && plan.desc.handles)) return {};
  return {StatusCode::kMisuse, fmt::format("{} was called; next comes {}", names[phase], names[next_phase])};
}

Status MoeAllToAll::State::check_out(const void* out, const MoeHandle* handle) const {
  if (has_no_tokens(handle)) return {};  // an empty tensor may have no address
  return check_pointer("out", out, 16);
}

void MoeAllToAll::State::set_tokens(const MoeTokens& tokens, moe::CallForm form) {
  args.send.x = tokens.x;
  args.tokens.topk = tokens.topk_indices;
  // With weights_at_combine nobody uses the weights of routes. Their senders read them from memory that is as long and
  // can be read.
  args.tokens.weights =
      plan.desc.weights_at_combine ? static_cast<const float*>(tokens.topk_indices) : tokens.topk_weights;
  args.tokens.count = tokens.tokens;
  args.tokens.on_device = tokens.tokens_on_device;
  args.rows.expert_counts = tokens.expert_counts;
  args.dispatch_was_empty = 0;
  args.send.drop_put = faults.drop_put;
  args.send.configuration = plan.configuration * 4 + static_cast<std::uint64_t>(form) + (faults.mismatch ? 0x100 : 0);
}

Status MoeAllToAll::State::run(KernelId id, Stream stream, std::int32_t halves) {
  if (const Status status = world->status(); !status.ok()) return status;
  LaunchConfig config{plan.blocks, plan.threads, static_cast<std::size_t>(plan.shared_bytes)};
  if (id == kCombine && halves == kBothHalves) config.blocks *= combine_blocks_per_sm;
  if (id == kEndWithoutCombine) config.blocks = 1;
  const bool rows_move = id != kEndWithoutCombine && id != kReturnRowWeights;
  if (!rows_move || (id == kCombine && plan.slot_bytes == 0)) config.shared_bytes = 0;
  args.halves = halves;
  args.hidden = id == kDispatch ? plan.dispatch_hidden : plan.desc.hidden;
  if (plan.slot_bytes != 0) args.ring.piece_bytes = moe::ring_piece_bytes(args.hidden, plan.segments, plan.slot_bytes);
  args.roles = moe::roles_of(plan, id, halves, config.blocks, plan.threads / world->device().shape().traits.warp_size);
  return launch(world->device(), opened.kernel(id), config, args, stream);
}

Status MoeAllToAll::State::run_phase(KernelId id, std::int32_t halves, std::uint32_t next, Stream stream) {
  const Status status = run(id, stream, halves);
  if (!status.ok()) return status;
  next_phase = next;
  weights_returned = id == kReturnRowWeights;
  return status;
}

Status MoeAllToAll::State::check_combine(const MoeHandle* handle) const {
  if (!plan.desc.handles) {
    if (handle == nullptr) return check_phase(kReceived);
    return invalid_argument("handle is given; allowed: null, as MoeAllToAllDesc.handles is false");
  }
  if (handle == nullptr)
    return invalid_argument("handle is null; allowed: a pointer, as MoeAllToAllDesc.handles is true");
  if (next_phase != kIdle && next_phase != kReceived) return check_phase(kReceived);
  if (handle->tokens < 0 || handle->tokens > plan.desc.max_tokens)
    return invalid_argument(
        fmt::format("MoeHandle.tokens is {}; allowed: 0 to {}", handle->tokens, plan.desc.max_tokens));
  if (handle->rows < -1 || handle->rows > plan.recv_rows)
    return invalid_argument(fmt::format("MoeHandle.rows is {}; allowed: -1 (all) to {}", handle->rows, plan.recv_rows));
  const auto index_bytes = static_cast<int>(bytes_of(plan.desc.index_type));
  Status status = check_pointer("MoeHandle.memory", handle->memory, 16);
  if (status.ok() && handle->tokens > 0)
    status = check_pointer("MoeHandle.topk_indices", handle->topk_indices, index_bytes);
  return status;
}

Status MoeAllToAll::State::end_uncombined(Stream stream) {
  if (next_phase != kReceived || !plan.desc.handles) return {};
  return run_phase(kEndWithoutCombine, kBothHalves, kIdle, stream);
}

void MoeAllToAll::State::set_handle(const MoeHandle& handle) {
  args.tokens.topk = handle.topk_indices;
  args.tokens.count = handle.tokens;
  args.tokens.on_device = nullptr;
  args.dispatch.recv_rows = handle.rows < 0 ? plan.recv_rows : handle.rows;
  args.kept = static_cast<std::byte*>(const_cast<void*>(handle.memory));
}

Status MoeAllToAll::State::take_up(const MoeHandle& handle, Stream stream) {
  if (is_taken_up(handle)) {
    set_handle(handle);
    return {};
  }
  if (Status status = end_uncombined(stream); !status.ok()) return status;
  std::byte* const workspace = args.view.heap[args.view.rank] + args.workspace;
  auto* const discarded = reinterpret_cast<std::int32_t*>(workspace + plan.workspace.discarded);
  set_tokens({}, moe::CallForm::kCombineOfHandle);
  set_received({.counts = discarded, .offsets = discarded + plan.max_local_experts, .rows = 0});
  if (plan.desc.layout != MoeLayout::kRows)
    args.dispatch.recv_rows = plan.recv_rows;  // from which the room of an expert follows
  args.kept = workspace + plan.workspace.kept;
  args.dispatch_was_empty = 1;
  const Status status = run_phase(kDispatch, kBothHalves, kReceived, stream);
  last_handle = nullptr;
  set_handle(handle);
  return status;
}

void MoeAllToAll::State::set_received(const MoeReceived& received) {
  args.dispatch.recv_x = received.x;
  args.fp8.scales = static_cast<float*>(received.scales);
  args.dispatch.counts = received.counts;
  args.dispatch.row_offsets = received.offsets;
  args.dispatch.origins = received.origins;
  args.rows.recv_topk = received.topk_indices;
  args.rows.recv_weights = received.topk_weights;
  args.dispatch.recv_rows = received.rows < 0 ? plan.recv_rows : received.rows;
  args.expert_rows.count_sums = received.count_sums;
  args.expert_rows.row_ranges = nullptr;
  args.expert_rows.row_tokens = nullptr;
  if (received.handle == nullptr) return;
  args.kept = static_cast<std::byte*>(received.handle);
  last_handle = received.handle;
  if (plan.desc.layout != MoeLayout::kMasked) return;
  args.expert_rows.row_ranges = reinterpret_cast<std::int64_t*>(args.kept + plan.handle_ranges);
  args.expert_rows.row_tokens = reinterpret_cast<std::int32_t*>(args.kept + plan.handle_tokens);
}

}  // namespace farwarp
