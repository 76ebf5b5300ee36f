// What an instance of the MoE all-to-all holds, and its launches. For moe_a2a.cc and state.cc alone.
#pragma once

#include <string>

#include "farwarp/ops/moe_a2a/args.h"
#include "farwarp/ops/moe_a2a/moe_a2a.h"
#include "farwarp/ops/moe_a2a/tensors.h"
#include "farwarp/ops/moe_a2a/variants.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace moe {

/// The form of a call, on which ranks must agree: its headers carry it with the plan's configuration.
enum class CallForm : std::uint64_t { kCombineOfHandle = 0, kSplit = 1, kFusedRankScale = 2, kFusedTable = 3 };

/// The experts of the fused form.
struct FusedExpert {
  MoeExpert expert;
  KernelId kernel;
  CallForm form;
};
inline constexpr FusedExpert kFusedExperts[] = {{MoeExpert::kRankScale, kFusedRankScale, CallForm::kFusedRankScale},
                                                {MoeExpert::kTable, kFusedTable, CallForm::kFusedTable}};

/// The name of the kernel that an instance of this plan launches.
std::string kernel_name(KernelId id, const MoeAllToAllPlan& plan);

Status check_counts(const MoeCounts& counts);
/// `counted`: dispatch_send has delivered the counts.
Status check_received(const MoeReceived& received, const MoeAllToAllPlan& plan, bool counted);

}  // namespace moe

struct MoeAllToAll::State {
  World* world = nullptr;
  MoeAllToAllPlan plan;
  OpenedOperator opened;  ///< a kernel for each KernelId; buffer 0: MoeWorkspace up to words_begin, buffer 1: the rest
  moe::Args args{};       ///< what does not change between calls, and a split call's tokens from send to recv
  int combine_blocks_per_sm = 1;
  MoeFaults faults;
  std::uint32_t next_phase = moe::kIdle;  ///< of a split call: the phase that its next kernel finds
  bool counted = false;                   ///< of a split call: its sending half has delivered the counts
  const void* last_handle = nullptr;      ///< Desc::handles: of the last dispatch, until it is combined
  /// The last kernel returned row weights. A second one of the same call would use the same tag: its readers would not
  /// wait, but take the first one's.
  bool weights_returned = false;

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
  MoeTokens tokens_again() const {
    return {nullptr, args.tokens.topk, nullptr, args.tokens.count, args.tokens.on_device};
  }
  MoeTokens tokens_of(const MoeHandle* handle) const {
    return handle == nullptr ? tokens_again() : MoeTokens{nullptr, handle->topk_indices, nullptr, handle->tokens};
  }
  /// Of what dispatch delivers, what combine reads.
  MoeReceived received_of(const MoeHandle* handle) const {
    if (handle == nullptr) return {.rows = args.dispatch.recv_rows};
    MoeReceived received{.handle = const_cast<void*>(handle->memory)};
    received.rows = handle->rows;
    return received;
  }
  void set_tokens(const MoeTokens& tokens, moe::CallForm form);
  /// Of combine, whose phase is kReceived without handles.
  Status check_combine(const MoeHandle* handle) const;
  void set_received(const MoeReceived& received);
  void set_handle(const MoeHandle& handle);
  Status run(moe::KernelId id, Stream stream, std::int32_t halves = moe::kBothHalves);
  /// Runs these halves of the kernel; phase `next` follows.
  Status run_phase(moe::KernelId id, std::int32_t halves, std::uint32_t next, Stream stream);
  /// Desc::handles: ends a call that has been received and is not combined. Before a dispatch.
  Status end_uncombined(Stream stream);
  /// Desc::handles: the call under way is that of `handle`, and its phase is kReceived.
  bool is_taken_up(const MoeHandle& handle) const {
    return next_phase == moe::kReceived && last_handle == handle.memory;
  }
  /// Desc::handles: makes the call's phase kReceived, with what combine reads of the dispatch of `handle`.
  Status take_up(const MoeHandle& handle, Stream stream);
};

}  // namespace farwarp
