#include "farwarp/ops/moe_a2a/moe_a2a.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/moe_a2a/args.h"
#include "farwarp/ops/moe_a2a/state.h"

namespace farwarp {
namespace {

using moe::KernelId;
using enum moe::KernelId;
using moe::CallForm;
using moe::check_counts;
using moe::check_received;
using moe::FusedExpert;
using moe::kBothHalves;
using moe::kFusedExperts;
using moe::kIdle;
using moe::kReceived;
using moe::kReceiveHalf;
using moe::kReturning;
using moe::kSendHalf;
using moe::kSent;

/// Combine without rings uses no shared memory, so several of its blocks fit on a multiprocessor and have more loads in
/// flight. Two are faster than one (MEASURED.md, "Tried and rejected").
constexpr int kCombineBlocksPerSm = 2;

}  // namespace

Result<MoeAllToAll> MoeAllToAll::create(World& world, const MoeAllToAllDesc& desc) {
  const auto plan = plan_moe_all_to_all(desc, world.device().shape(), world.size());
  std::vector<std::string> kernels;
  for (int id = 0; plan.ok() && id < kKernels; ++id) kernels.push_back(kernel_name(static_cast<KernelId>(id), *plan));
  const MoeWorkspace parts = plan.ok() ? plan->workspace : MoeWorkspace{};
  auto opened = open_state<State>(world, plan,
                                  {.name = "moe_a2a",
                                   .site_names = moe::kSiteNames,
                                   .configuration = plan.ok() ? plan->configuration : 0,
                                   .kernels = std::move(kernels),
                                   .buffers = {{parts.words_begin, 0}, {parts.total - parts.words_begin, 0xff}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);

  const MachineShape& shape = world.device().shape();
  moe::Args& args = state->args;
  args.view = world.view();
  args.operator_slot = state->opened.slot();
  args.num_experts = desc.num_experts;
  args.reciprocal = moe::moe_reciprocal(desc.num_experts);
  args.k = desc.experts_per_token;
  args.max_tokens = desc.max_tokens;
  args.max_local_experts = plan->max_local_experts;
  args.segments = plan->segments;
  args.by_segments = Divisor(plan->segments);
  args.by_ranks = Divisor(plan->ranks);
  args.send.row_bytes = static_cast<std::int32_t>(plan->row_bytes);
  args.send.scales_at = static_cast<std::int32_t>(moe::fp8_scales_at(desc.hidden));
  args.header_packets = plan->header_packets;
  args.tokens.wide_indices = desc.index_type == DType::kI64;
  args.dispatch.masked_layout = desc.layout == MoeLayout::kMasked;
  const int tokens_apart = args.dispatch.masked_layout != 0 ? desc.experts_per_token : 1;
  args.dispatch.lane_entries = shape.traits.warp_size / tokens_apart * tokens_apart;
  args.dispatch.by_k = Divisor(desc.experts_per_token);
  args.expert_rows.row_alignment = desc.row_alignment;
  args.dispatch.recv_rows = plan->recv_rows;
  args.fp8.by_room =
      Divisor(static_cast<std::int32_t>(std::max<std::int64_t>(1, plan->recv_rows / plan->max_local_experts)));
  args.workspace = static_cast<std::int64_t>(state->opened.buffer(0).offset);
  args.offsets = parts;
  // The device's offsets all start from buffer 0: those of buffer 1 are moved by its distance.
  const std::int64_t moved =
      static_cast<std::int64_t>(state->opened.buffer(1).offset) - args.workspace - parts.words_begin;
  if (plan->mode == MoeMode::kWords) args.offsets.rows += moved;
  args.offsets.returns += moved;
  const moe::LaunchMemory memory = moe::launch_memory(*plan, shape.traits);
  args.shared = memory.parts;
  args.rows.bitmap_sums = memory.bitmap_sums;
  args.ring.barriers = memory.rings.barriers;
  args.ring.slots = memory.rings.slots;
  args.ring.slot_bytes = memory.rings.slot_bytes;
  args.fp8.exponents = desc.scales == MoeScales::kExponentColumns ? 2 : desc.powers_of_two ? 1 : 0;
  args.kept = args.view.heap[args.view.rank] + args.workspace + parts.kept;
  const auto resident = world.device().blocks_per_multiprocessor(state->opened.kernel(kCombine), plan->threads, 0);
  // With max_sms, twice the blocks could occupy twice as many multiprocessors; with rings, one block takes most of the
  // shared memory.
  const bool may_fill_all = desc.max_sms == 0 && plan->slot_bytes == 0;
  state->combine_blocks_per_sm = std::clamp(may_fill_all && resident.ok() ? *resident : 1, 1, kCombineBlocksPerSm);
  return MoeAllToAll(std::move(state));
}

MoeAllToAll::MoeAllToAll(std::unique_ptr<State> state) : state_(std::move(state)) {}
MoeAllToAll::MoeAllToAll(MoeAllToAll&&) noexcept = default;
MoeAllToAll& MoeAllToAll::operator=(MoeAllToAll&&) noexcept = default;
MoeAllToAll::~MoeAllToAll() = default;

Status MoeAllToAll::close() { return close_opened("MoeAllToAll", state_); }

const MoeAllToAllPlan& MoeAllToAll::plan() const {
  static const MoeAllToAllPlan kNone;
  return state_ ? state_->plan : kNone;
}

void MoeAllToAll::inject(const MoeFaults& faults) {
  if (state_) state_->faults = faults;
}

void MoeAllToAll::forget_call() {
  if (state_) state_->next_phase = kIdle;
}

Status MoeAllToAll::dispatch_send(const MoeTokens& tokens, Stream stream, const MoeCounts& counts) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  const bool counted = counts.counts != nullptr || counts.offsets != nullptr;
  if (counted && state_->plan.desc.layout != MoeLayout::kRows)
    return invalid_argument("MoeCounts are given; allowed: null, as MoeAllToAllDesc.layout is not kRows");
  const Status status = first_failure(
      {state_->check_phase(kIdle), state_->check_tokens(tokens), counted ? check_counts(counts) : Status{},
       state_->check_memory({.tokens = tokens, .received = {.counts = counts.counts, .offsets = counts.offsets}})});
  if (!status.ok()) return status;
  if (const Status ended = state_->end_uncombined(stream); !ended.ok()) return ended;
  state_->set_tokens(tokens, CallForm::kSplit);
  state_->args.dispatch.counts = counts.counts;
  state_->args.dispatch.row_offsets = counts.offsets;
  state_->counted = counted;
  return state_->run_phase(kDispatch, kSendHalf, kSent, stream);
}

Status MoeAllToAll::dispatch_recv(const MoeReceived& received, Stream stream) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  const Status status =
      first_failure({state_->check_phase(kSent), check_received(received, state_->plan, state_->counted),
                     state_->check_memory({.tokens = state_->tokens_again(), .received = received})});
  if (!status.ok()) return status;
  state_->set_received(received);
  return state_->run_phase(kDispatch, kReceiveHalf, kReceived, stream);
}

Status MoeAllToAll::combine_send(const void* y, Stream stream, const float* topk_weights, const MoeHandle* handle) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  if (const Status combines = state_->check_combine(handle); !combines.ok()) return combines;
  Status status = first_failure({state_->check_y(y, handle), state_->check_combine_weights(topk_weights, handle),
                                 state_->check_memory({.tokens = state_->tokens_of(handle),
                                                       .received = state_->received_of(handle),
                                                       .y = y,
                                                       .topk_weights = topk_weights})});
  if (status.ok() && handle != nullptr) status = state_->take_up(*handle, stream);
  if (!status.ok()) return status;
  state_->args.combine.y = y;
  state_->args.tokens.weights = topk_weights;
  return state_->run_phase(kCombine, kSendHalf, kReturning, stream);
}

Status MoeAllToAll::return_row_weights(const float* row_weights, float* out, Stream stream, const MoeHandle& handle) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  if (state_->plan.desc.layout != MoeLayout::kRows || !state_->plan.desc.handles)
    return invalid_argument(
        "return_row_weights() was called; allowed: with MoeAllToAllDesc.layout kRows and handles true");
  Status status = state_->check_combine(&handle);
  if (status.ok() && state_->weights_returned && state_->is_taken_up(handle))
    status = {StatusCode::kMisuse, "return_row_weights was called; next comes combine or combine_send"};
  if (status.ok() && handle.rows != 0) status = check_pointer("row_weights", row_weights, 4);
  if (status.ok() && handle.tokens != 0) status = check_pointer("out", out, 4);
  if (status.ok())
    status = state_->check_memory({.tokens = state_->tokens_of(&handle),
                                   .received = state_->received_of(&handle),
                                   .row_weights = row_weights,
                                   .out = out});
  if (status.ok()) status = state_->take_up(handle, stream);
  if (!status.ok()) return status;
  state_->last_handle = handle.memory;  // its combine takes up the same call
  state_->args.row_weights.of_rows = row_weights;
  state_->args.row_weights.sums = out;
  return state_->run_phase(kReturnRowWeights, kBothHalves, kReceived, stream);
}

Status MoeAllToAll::combine_recv(void* out, Stream stream) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  const Status status = first_failure({state_->check_phase(kReturning), state_->check_out(out),
                                       state_->check_memory({.tokens = state_->tokens_again(), .out = out})});
  if (!status.ok()) return status;
  state_->args.combine.out = out;
  return state_->run_phase(kCombine, kReceiveHalf, kIdle, stream);
}

Status MoeAllToAll::dispatch(const MoeTokens& tokens, const MoeReceived& received, Stream stream) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  const Status status = first_failure({state_->check_phase(kIdle), state_->check_tokens(tokens),
                                       check_received(received, state_->plan, false),
                                       state_->check_memory({.tokens = tokens, .received = received})});
  if (!status.ok()) return status;
  if (const Status ended = state_->end_uncombined(stream); !ended.ok()) return ended;
  state_->set_tokens(tokens, CallForm::kSplit);
  state_->set_received(received);
  return state_->run_phase(kDispatch, kBothHalves, kReceived, stream);
}

Status MoeAllToAll::combine(const void* y, void* out, Stream stream, const float* topk_weights,
                            const MoeHandle* handle) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  if (const Status combines = state_->check_combine(handle); !combines.ok()) return combines;
  Status status = first_failure({state_->check_y(y, handle), state_->check_out(out, handle),
                                 state_->check_combine_weights(topk_weights, handle),
                                 state_->check_memory({.tokens = state_->tokens_of(handle),
                                                       .received = state_->received_of(handle),
                                                       .y = y,
                                                       .topk_weights = topk_weights,
                                                       .out = out})});
  if (status.ok() && handle != nullptr) status = state_->take_up(*handle, stream);
  if (!status.ok()) return status;
  state_->args.combine.y = y;
  state_->args.tokens.weights = topk_weights;
  state_->args.combine.out = out;
  return state_->run_phase(kCombine, kBothHalves, kIdle, stream);
}

Status MoeAllToAll::fused(const MoeTokens& tokens, MoeExpert expert, const float* expert_table, void* out,
                          Stream stream) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  const auto* const fused = std::ranges::find(kFusedExperts, expert, &FusedExpert::expert);
  if (fused == std::end(kFusedExperts))
    return invalid_argument(fmt::format("MoeExpert is {}; allowed: kRankScale, kTable", static_cast<int>(expert)));
  if (state_->plan.desc.layout == MoeLayout::kRows)
    return invalid_argument("fused() was called with MoeAllToAllDesc.layout kRows; allowed: dispatch and combine");
  if (state_->plan.desc.weights_at_combine)
    return invalid_argument(
        "fused() was called with MoeAllToAllDesc.weights_at_combine; allowed: dispatch and combine");
  if (state_->plan.desc.handles)
    return invalid_argument("fused() was called with MoeAllToAllDesc.handles; allowed: dispatch and combine");
  const bool table = expert == MoeExpert::kTable;
  const Status status = first_failure(
      {state_->check_phase(kIdle), state_->check_tokens(tokens),
       table ? check_pointer("expert_table", expert_table, 4) : Status{},
       state_->check_memory({.tokens = tokens, .expert_table = table ? expert_table : nullptr, .out = out})});
  if (!status.ok()) return status;
  state_->set_tokens(tokens, fused->form);  // before check_out(), which asks args for the tokens
  if (const Status out_status = state_->check_out(out); !out_status.ok()) return out_status;
  state_->args.combine.out = out;
  state_->args.fused.expert_table = expert_table;
  return state_->run(fused->kernel, stream);
}

}  // namespace farwarp
