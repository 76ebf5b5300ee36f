#include "farwarp/ops/moe_a2a/moe_a2a.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/moe_a2a/args.h"
#include "farwarp/ops/moe_a2a/tensors.h"
#include "farwarp/ops/moe_a2a/variants.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

using moe::KernelId;
using enum moe::KernelId;
using moe::kBothParts;
using moe::kIdle;
using moe::kReceivePart;
using moe::kReceived;
using moe::kReturning;
using moe::kSendPart;
using moe::kSent;

/// The form of a call, on which ranks must agree: its headers carry it with the plan's configuration.
enum class CallForm : std::uint64_t { kAfterNothing = 0, kSplit = 1, kFusedRankScale = 2, kFusedTable = 3 };

/// The experts of the fused form.
struct FusedExpert {
  MoeExpert expert;
  KernelId kernel;
  CallForm form;
};
constexpr FusedExpert kFusedExperts[] = {{MoeExpert::kRankScale, kFusedRankScale, CallForm::kFusedRankScale},
                                         {MoeExpert::kTable, kFusedTable, CallForm::kFusedTable}};

/// `split`: of dispatch, which delivers scales.
moe::Wire wire_of(const MoeAllToAllPlan& plan, bool split) {
  using enum moe::Wire;
  const bool words = plan.mode == MoeMode::kWords;
  if (!plan.desc.fp8_dispatch) return words ? Words : Bulk;
  if (split && plan.desc.scales != MoeScales::kRows) return words ? Fp8WordsColumns : Fp8BulkColumns;
  return words ? Fp8Words : Fp8Bulk;
}

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

/// Combine without rings uses no shared memory, so several of its blocks fit on a multiprocessor and have more loads in flight. Two are faster than one
/// (MEASURED.md, "What each step was worth").
constexpr int kCombineBlocksPerSm = 2;

/// Which blocks and warps send and receive in a launch of `blocks` blocks.
moe::Roles roles_of(const MoeAllToAllPlan& plan, KernelId id, std::int32_t part, int blocks, int warps) {
  if (plan.send_only_blocks > 0 && id == kDispatch && part == kBothParts) {
    return {.sending_blocks = plan.send_only_blocks,
            .sending_warps = warps,
            .workers = blocks - plan.send_only_blocks,
            .first_worker = plan.send_only_blocks};
  }
  const bool fused = std::ranges::find(kFusedExperts, id, &FusedExpert::kernel) != std::end(kFusedExperts);
  const bool returns = id == kCombine && part == kBothParts && plan.returning_warps > 0;
  return {.sending_blocks = blocks,
          .sending_warps = fused     ? plan.sending_warps
                           : returns ? plan.returning_warps
                                     : warps,
          .workers = blocks,
          .first_worker = 0};
}

Status check_counts(const MoeCounts& counts) {
  return first_failure(
      {check_pointer("MoeCounts.counts", counts.counts, 4), check_pointer("MoeCounts.offsets", counts.offsets, 4)});
}

Status check_rows(const MoeReceived& received, const MoeAllToAllPlan& plan, bool counted) {
  if (received.rows < -1 || received.rows > plan.recv_rows)
    return invalid_argument(
        fmt::format("MoeReceived.rows is {}; allowed: -1 (all) to {}", received.rows, plan.recv_rows));
  Status status = counted ? Status() : check_counts({received.counts, received.offsets});
  if (received.rows == 0) return status;  // empty tensors may have no address
  const auto index_bytes = static_cast<int>(bytes_of(plan.desc.index_type));
  if (status.ok()) status = check_pointer("MoeReceived.x", received.x, 16);
  if (status.ok()) status = check_pointer("MoeReceived.topk_indices", received.topk_indices, index_bytes);
  if (status.ok()) status = check_pointer("MoeReceived.topk_weights", received.topk_weights, 4);
  if (status.ok() && received.origins != nullptr) status = check_pointer("MoeReceived.origins", received.origins, 8);
  return status;
}

/// `counted`: dispatch_send has delivered the counts.
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

/// Weights are given either to dispatch or to combine.
Status check_weights(const char* name, const float* weights, bool wanted) {
  if (wanted) return check_pointer(name, weights, 4);
  if (weights == nullptr) return {};
  return invalid_argument(fmt::format(
      "{} is given; allowed: null (with MoeAllToAllDesc.weights_at_combine combine takes the weights, else dispatch)",
      name));
}

}  // namespace

struct MoeAllToAll::State {
  World* world = nullptr;
  MoeAllToAllPlan plan;
  OpenedOperator opened;  ///< a kernel for each KernelId; buffer 0: MoeWorkspace up to words_begin, buffer 1: the rest
  moe::Args args{};       ///< what does not change between calls, and a split call's tokens from send to recv
  int combine_blocks_per_sm = 1;
  MoeFaults faults;
  std::uint32_t next_phase = kIdle;  ///< of a split call: the phase that its next kernel finds
  bool counted = false;              ///< of a split call: its sending half has delivered the counts
  const void* last_handle = nullptr;  ///< Desc::handles: of the last dispatch, until it is combined

  /// kMisuse unless `phase` is the next phase of a call.
  Status check_phase(std::uint32_t phase) const;
  Status check_tokens(const MoeTokens& tokens) const;
  /// `handle`: null without Desc::handles; then the call under way tells what it would.
  bool has_no_tokens(const MoeHandle* handle) const;
  Status check_out(const void* out, const MoeHandle* handle = nullptr) const;
  Status check_y(const void* y, const MoeHandle* handle) const;
  Status check_combine_weights(const float* weights, const MoeHandle* handle) const;
  Status check_memory(const moe::CallTensors& tensors) const { return moe::check_memory(plan, world->rank(), tensors); }
  /// What a later half reads again of the tokens of its dispatch.
  MoeTokens tokens_again() const { return {nullptr, args.topk, nullptr, args.tokens, args.tokens_on_device}; }
  MoeTokens tokens_of(const MoeHandle* handle) const {
    return handle == nullptr ? tokens_again() : MoeTokens{nullptr, handle->topk_indices, nullptr, handle->tokens};
  }
  /// Of what dispatch delivers, what combine reads.
  MoeReceived received_of(const MoeHandle* handle) const {
    if (handle == nullptr) return {.rows = args.recv_rows};
    return {.rows = handle->rows, .handle = const_cast<void*>(handle->memory)};
  }
  void set_tokens(const MoeTokens& tokens, CallForm form);
  /// Of combine, whose phase is kReceived without handles.
  Status check_combine(const MoeHandle* handle) const;
  void set_received(const MoeReceived& received);
  void set_handle(const MoeHandle& handle);
  Status run(KernelId id, Stream stream, std::int32_t part = kBothParts);
  /// Runs the part of the kernel; phase `next` follows.
  Status run_phase(KernelId id, std::int32_t part, std::uint32_t next, Stream stream);
  /// Desc::handles: ends a call that has been received and is not combined. Before a dispatch.
  Status end_uncombined(Stream stream);
  /// Desc::handles: makes the call's phase kReceived, with what combine reads of the dispatch of `handle`.
  Status take_up(const MoeHandle& handle, Stream stream);
};

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
  return first_failure({check_pointer("MoeTokens.x", tokens.x, 16),
                        check_pointer("MoeTokens.topk_indices", tokens.topk_indices, index_bytes),
                        check_weights("MoeTokens.topk_weights", tokens.topk_weights, !plan.desc.weights_at_combine)});
}

Status MoeAllToAll::State::check_y(const void* y, const MoeHandle* handle) const {
  const std::int64_t rows = handle == nullptr ? args.recv_rows : handle->rows;
  if (plan.desc.layout == MoeLayout::kRows && rows == 0) return {};  // an empty tensor may have no address
  return check_pointer("y", y, 16);
}

bool MoeAllToAll::State::has_no_tokens(const MoeHandle* handle) const {
  return handle != nullptr ? handle->tokens == 0 : args.tokens_on_device == nullptr && args.tokens == 0;
}

Status MoeAllToAll::State::check_combine_weights(const float* weights, const MoeHandle* handle) const {
  if (has_no_tokens(handle) && weights == nullptr) return {};  // an empty tensor may have no address
  return check_weights("topk_weights", weights, plan.desc.weights_at_combine);
}

Status MoeAllToAll::State::check_phase(std::uint32_t phase) const {
  static constexpr const char* kNames[] = {"dispatch, dispatch_send or fused", "dispatch_recv",
                                           "combine or combine_send", "combine_recv"};
  if (phase == next_phase || (phase == kIdle && next_phase == kReceived && plan.desc.handles)) return {};
  return {StatusCode::kMisuse, fmt::format("{} was called; next comes {}", kNames[phase], kNames[next_phase])};
}

Status MoeAllToAll::State::check_out(const void* out, const MoeHandle* handle) const {
  if (has_no_tokens(handle)) return {};  // an empty tensor may have no address
  return check_pointer("out", out, 16);
}

void MoeAllToAll::State::set_tokens(const MoeTokens& tokens, CallForm form) {
  args.x = tokens.x;
  args.topk = tokens.topk_indices;
  // With weights_at_combine nobody uses the weights of routes. Their senders read them from memory that is as long and can be read.
  args.weights = plan.desc.weights_at_combine ? static_cast<const float*>(tokens.topk_indices) : tokens.topk_weights;
  args.tokens = tokens.tokens;
  args.tokens_on_device = tokens.tokens_on_device;
  args.expert_counts = tokens.expert_counts;
  args.after_nothing = 0;
  args.drop_put = faults.drop_put;
  args.configuration = plan.configuration * 4 + static_cast<std::uint64_t>(form) + (faults.mismatch ? 0x100 : 0);
}

Status MoeAllToAll::State::run(KernelId id, Stream stream, std::int32_t part) {
  if (const Status status = world->status(); !status.ok()) return status;
  LaunchConfig config{plan.blocks, plan.threads, static_cast<std::size_t>(plan.shared_bytes)};
  if (id == kCombine && part == kBothParts) config.blocks *= combine_blocks_per_sm;
  if (id == kEndWithoutCombine) config.blocks = 1;
  const bool rows_move = id != kEndWithoutCombine && id != kReturnRowWeights;
  if (!rows_move || (id == kCombine && plan.slot_bytes == 0)) config.shared_bytes = 0;
  args.part = part;
  args.hidden = id == kDispatch ? plan.dispatch_hidden : plan.desc.hidden;
  if (plan.slot_bytes != 0) args.piece_bytes = moe::ring_piece_bytes(args.hidden, plan.segments, plan.slot_bytes);
  args.roles = roles_of(plan, id, part, config.blocks, plan.threads / world->device().shape().traits.warp_size);
  return launch(world->device(), opened.kernel(id), config, args, stream);
}

Status MoeAllToAll::State::run_phase(KernelId id, std::int32_t part, std::uint32_t next, Stream stream) {
  const Status status = run(id, stream, part);
  if (status.ok()) next_phase = next;
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
  return run_phase(kEndWithoutCombine, kBothParts, kIdle, stream);
}

void MoeAllToAll::State::set_handle(const MoeHandle& handle) {
  args.topk = handle.topk_indices;
  args.tokens = handle.tokens;
  args.tokens_on_device = nullptr;
  args.recv_rows = handle.rows < 0 ? plan.recv_rows : handle.rows;
  args.kept = static_cast<std::byte*>(const_cast<void*>(handle.memory));
}

Status MoeAllToAll::State::take_up(const MoeHandle& handle, Stream stream) {
  if (next_phase == kReceived && last_handle == handle.memory) {
    set_handle(handle);
    return {};
  }
  if (Status status = end_uncombined(stream); !status.ok()) return status;
  std::byte* const workspace = args.view.heap[args.view.rank] + args.workspace;
  auto* const unread = reinterpret_cast<std::int32_t*>(workspace + plan.unread);
  set_tokens({}, CallForm::kAfterNothing);
  set_received({.counts = unread, .offsets = unread + plan.max_local_experts, .rows = 0});
  if (plan.desc.layout != MoeLayout::kRows) args.recv_rows = plan.recv_rows;  // from which the room of an expert follows
  args.kept = workspace + plan.workspace.kept;
  args.after_nothing = 1;
  const Status status = run_phase(kDispatch, kBothParts, kReceived, stream);
  last_handle = nullptr;
  set_handle(handle);
  return status;
}

void MoeAllToAll::State::set_received(const MoeReceived& received) {
  args.recv_x = received.x;
  args.recv_scales = static_cast<float*>(received.scales);
  args.counts = received.counts;
  args.row_offsets = received.offsets;
  args.origins = received.origins;
  args.recv_topk = received.topk_indices;
  args.recv_weights = received.topk_weights;
  args.recv_rows = received.rows < 0 ? plan.recv_rows : received.rows;
  args.recv_stats = received.count_sums;
  args.row_ranges = nullptr;
  args.row_tokens = nullptr;
  if (received.handle == nullptr) return;
  args.kept = static_cast<std::byte*>(received.handle);
  last_handle = received.handle;
  if (plan.desc.layout != MoeLayout::kMasked) return;
  args.row_ranges = reinterpret_cast<std::int64_t*>(args.kept + plan.handle_ranges);
  args.row_tokens = reinterpret_cast<std::int32_t*>(args.kept + plan.handle_tokens);
}

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
  args.slot = state->opened.slot();
  args.num_experts = desc.num_experts;
  args.reciprocal = moe::moe_reciprocal(desc.num_experts);
  args.k = desc.experts_per_token;
  args.max_tokens = desc.max_tokens;
  args.max_local_experts = plan->max_local_experts;
  args.segments = plan->segments;
  args.by_segments = Divisor(plan->segments);
  args.by_ranks = Divisor(plan->ranks);
  args.row_bytes = static_cast<std::int32_t>(plan->row_bytes);
  args.scales_at = static_cast<std::int32_t>(moe::fp8_scales_at(desc.hidden));
  args.header_packets = plan->header_packets;
  args.wide_indices = desc.index_type == DType::kI64;
  args.masked_layout = desc.layout == MoeLayout::kMasked;
  const int tokens_apart = args.masked_layout != 0 ? desc.experts_per_token : 1;
  args.lane_entries = shape.traits.warp_size / tokens_apart * tokens_apart;
  args.by_k = Divisor(desc.experts_per_token);
  args.row_alignment = desc.row_alignment;
  args.recv_rows = plan->recv_rows;
  args.by_room =
      Divisor(static_cast<std::int32_t>(std::max<std::int64_t>(1, plan->recv_rows / plan->max_local_experts)));
  args.combine_weights = plan->combine_weights;
  args.workspace = static_cast<std::int64_t>(state->opened.buffer(0).offset);
  args.offsets = parts;
  // The device's offsets all start from buffer 0: those of buffer 1 are moved by its distance.
  const std::int64_t moved =
      static_cast<std::int64_t>(state->opened.buffer(1).offset) - args.workspace - parts.words_begin;
  if (plan->mode == MoeMode::kWords) args.offsets.rows += moved;
  args.offsets.returns += moved;
  const moe::LaunchMemory memory = moe::launch_memory(*plan, shape.traits);
  args.shared = memory.parts;
  args.row_places = memory.row_places;
  args.ring_barriers = memory.rings.barriers;
  args.ring_slots = memory.rings.slots;
  args.slot_bytes = memory.rings.slot_bytes;
  args.return_flags = plan->return_flags;
  args.scale_exponents = desc.scales == MoeScales::kExponentColumns ? 2 : desc.powers_of_two ? 1 : 0;
  args.kept = args.view.heap[args.view.rank] + args.workspace + parts.kept;
  const auto resident = world.device().blocks_per_multiprocessor(state->opened.kernel(kCombine), plan->threads, 0);
  // With max_sms, twice the blocks could occupy twice as many multiprocessors; with rings, one block takes most of the shared memory.
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
  state_->args.counts = counts.counts;
  state_->args.row_offsets = counts.offsets;
  state_->counted = counted;
  return state_->run_phase(kDispatch, kSendPart, kSent, stream);
}

Status MoeAllToAll::dispatch_recv(const MoeReceived& received, Stream stream) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  const Status status =
      first_failure({state_->check_phase(kSent), check_received(received, state_->plan, state_->counted),
                     state_->check_memory({.tokens = state_->tokens_again(), .received = received})});
  if (!status.ok()) return status;
  state_->set_received(received);
  return state_->run_phase(kDispatch, kReceivePart, kReceived, stream);
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
  state_->args.y = y;
  state_->args.weights = topk_weights;
  return state_->run_phase(kCombine, kSendPart, kReturning, stream);
}

Status MoeAllToAll::return_row_weights(const float* row_weights, float* out, Stream stream, const MoeHandle& handle) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  if (state_->plan.desc.layout != MoeLayout::kRows || !state_->plan.desc.handles)
    return invalid_argument(
        "return_row_weights() was called; allowed: with MoeAllToAllDesc.layout kRows and handles true");
  Status status = state_->check_combine(&handle);
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
  state_->args.row_weights = row_weights;
  state_->args.out_weights = out;
  return state_->run_phase(kReturnRowWeights, kBothParts, kReceived, stream);
}

Status MoeAllToAll::combine_recv(void* out, Stream stream) {
  if (Status open = check_open("MoeAllToAll", state_); !open.ok()) return open;
  const Status status = first_failure({state_->check_phase(kReturning), state_->check_out(out),
                                       state_->check_memory({.tokens = state_->tokens_again(), .out = out})});
  if (!status.ok()) return status;
  state_->args.out = out;
  return state_->run_phase(kCombine, kReceivePart, kIdle, stream);
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
  return state_->run_phase(kDispatch, kBothParts, kReceived, stream);
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
  state_->args.y = y;
  state_->args.weights = topk_weights;
  state_->args.out = out;
  return state_->run_phase(kCombine, kBothParts, kIdle, stream);
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
  state_->set_tokens(tokens, fused->form);
  if (const Status out_status = state_->check_out(out); !out_status.ok()) return out_status;
  state_->args.out = out;
  state_->args.expert_table = expert_table;
  return state_->run(fused->kernel, stream);
}

}  // namespace farwarp
