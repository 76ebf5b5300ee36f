// MoE all-to-all: kernels send tokens to the ranks of their experts, and return the weighted sums.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "farwarp/base/half.h"
#include "farwarp/base/status.h"
#include "farwarp/ops/moe_a2a/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// One rank's tokens. All pointers are device pointers, rows contiguous. In a split call, indices and token count must
/// not change until combine (or combine_recv) has run: nobody would read the sum of an entry that was removed
/// meanwhile, and a later call would take it for its own.
struct MoeTokens {
  const void* x = nullptr;              ///< [tokens, plan.dispatch_hidden] of Desc::dtype, 16-byte aligned
  const void* topk_indices = nullptr;   ///< [tokens, experts_per_token] of Desc::index_type; -1 skips an entry
  const float* topk_weights = nullptr;  ///< [tokens, experts_per_token]; null with Desc::weights_at_combine
  int tokens = 0;                       ///< 0 .. Desc::max_tokens; ignored if tokens_on_device is given
  const std::int32_t* tokens_on_device = nullptr;  ///< one int32, read by the kernels
  /// kRows, or null: [num_experts], how many entries the owners are told of each expert, instead of those of
  /// topk_indices: for a caller who knows of each token only the ranks.
  const std::int32_t* expert_counts = nullptr;
};

/// What dispatch delivers: one row per (token, top-k entry) that chose an expert of this rank. Rows of an expert are
/// ordered by source rank, then token, then k-slot. With kMasked a token that has an expert in several k-slots has one
/// row there, of the first; combine weights it for each. With MoeLayout::kRows: one row per token with such an entry,
/// ordered by source rank, then token.
struct MoeReceived {
  /// [plan.recv_rows, plan.dispatch_hidden] of Desc::dtype, or of e4m3 bytes with Desc::fp8_dispatch; 16-byte aligned
  void* x = nullptr;
  std::int32_t* counts = nullptr;  ///< [local experts]: rows (kRows: entries) of each expert
  std::int32_t* offsets =
      nullptr;  ///< [local experts + 1]: first row of each expert, aligned to Desc::row_alignment; the last is the end.
                ///< kRows: [ranks + 1]: first row of each source rank; the last is the end
  /// [plan.recv_rows], or null: source rank << 48 | token << 16 | k-slot (kRows: 0). -1: an expert's padding, up to
  /// Desc::row_alignment, with kMasked up to its room. Rows from the end in `offsets` on are not written.
  std::int64_t* origins = nullptr;
  /// In the order and type of Desc::scales: factor of each 128 numbers of x; with Desc::fp8_dispatch only.
  void* scales = nullptr;
  std::int32_t* count_sums = nullptr;  ///< [local experts], to which counts are added; may be null. Not with kRows
  void* handle =
      nullptr;  ///< with Desc::handles: plan.handle_bytes of this rank's device memory, 16-byte aligned, for combine
  // With kRows only:
  void* topk_indices = nullptr;   ///< [rows, experts_per_token] of Desc::index_type: local expert; -1: of another rank
  float* topk_weights = nullptr;  ///< [rows, experts_per_token]; 0 where the index is -1
  std::int64_t rows = -1;  ///< of x and the two tables; -1: plan.recv_rows. Those beyond the end have indices of -1
};

/// With Desc::handles, what combine needs of the dispatch whose rows it returns. The memory of both must not have
/// changed since.
struct MoeHandle {
  const void* memory = nullptr;        ///< MoeReceived::handle
  const void* topk_indices = nullptr;  ///< MoeTokens::topk_indices
  int tokens = 0;                      ///< MoeTokens::tokens. A count on the device is not taken
  std::int64_t rows = -1;              ///< kRows: MoeReceived::rows
};

/// What dispatch_send() delivers with MoeLayout::kRows, so that the host can make room for the rows: as in MoeReceived.
struct MoeCounts {
  std::int32_t* counts = nullptr;
  std::int32_t* offsets = nullptr;
};

/// Faults to inject, which checks and deadlines must catch. The same kernels run with and without them.
struct MoeFaults {
  /// The rows of this rank's n-th token (from 1) never arrive. 0: no fault.
  std::uint32_t drop_put = 0;
  bool mismatch = false;  ///< this rank's headers carry another configuration
};

/// Not thread-safe. One call in flight per instance: dispatch, then combine; or fused. Halves are called in the order
/// dispatch_send, dispatch_recv, combine_send, combine_recv. Successive launches must be ordered by one stream, or by
/// an event between streams; if they are not, results may be wrong without an error. All calls are asynchronous,
/// allocate nothing and can be captured. Outputs (`out`, the memory of MoeReceived) must not overlap inputs of the same
/// launch. Kernels in other streams that wait for peers (another instance, NCCL) must fit on the device beside a call's
/// blocks (MoeAllToAllDesc::max_sms), or a wait may end at its deadline.
class MoeAllToAll {
 public:
  /// Collective. Takes plan.workspace.total bytes of the World's heap and nothing else. The World must outlive the
  /// operator and must not be moved.
  static Result<MoeAllToAll> create(World& world, const MoeAllToAllDesc& desc);
  MoeAllToAll(MoeAllToAll&&) noexcept;
  MoeAllToAll& operator=(MoeAllToAll&&) noexcept;
  /// Local. Does not free the workspace; close() does.
  ~MoeAllToAll();
  /// Collective; the streams that used it must be idle. Afterwards every call returns kMisuse, as on a moved-from
  /// object.
  Status close();

  const MoeAllToAllPlan& plan() const;
  void inject(const MoeFaults& faults);
  /// To be called after World::recover(): discards a split call that was under way. The next call may be dispatch,
  /// dispatch_send or fused.
  void forget_call();

  /// One launch.
  Status dispatch(const MoeTokens& tokens, const MoeReceived& received, Stream stream);
  /// One launch. `y`: [plan.recv_rows, hidden], the experts' outputs in the row order of dispatch; `out`: [tokens,
  /// hidden]. With kRows `y` is [MoeReceived::rows, hidden], what an owner has made of each row, its own sum of
  /// weighted outputs. A token's weighted outputs are summed on each owner in k-slot order in fp32 and rounded once to
  /// the dtype; the source adds the owners' sums in rank order in fp32 and rounds once. `topk_weights`: [tokens,
  /// experts_per_token] with Desc::weights_at_combine, else null. `handle`: with Desc::handles, not null. If its
  /// dispatch is the last one and has not been combined, that is all. Else all ranks' kernels first meet, as in a
  /// dispatch without tokens, which costs one launch more, two if the last dispatch is not combined. All ranks give
  /// handles of the same dispatch.
  Status combine(const void* y, void* out, Stream stream, const float* topk_weights = nullptr,
                 const MoeHandle* handle = nullptr);
  /// kRows with Desc::handles: at most once before each combine of the same handle. `row_weights`: [rows,
  /// experts_per_token] fp32; `out`: [tokens, experts_per_token], the sums over a token's owners, in rank order in
  /// fp32: the gradient of the weights that dispatch delivers.
  Status return_row_weights(const float* row_weights, float* out, Stream stream, const MoeHandle& handle);

  /// The halves, one launch each. Kernels on other streams may run between them, at the same time as the transfer.
  /// Desc::max_sms leaves multiprocessors for them. combine_send waits for peers only with Desc::weights_at_combine,
  /// until their combine_send has begun, or with a handle for which combine() has another launch (see there). With
  /// `counts` (MoeLayout::kRows) dispatch_send waits for the other ranks' counts, and dispatch_recv needs none.
  Status dispatch_send(const MoeTokens& tokens, Stream stream, const MoeCounts& counts = {});
  Status dispatch_recv(const MoeReceived& received, Stream stream);
  Status combine_send(const void* y, Stream stream, const float* topk_weights = nullptr,
                      const MoeHandle* handle = nullptr);
  Status combine_recv(void* out, Stream stream);

  /// dispatch, expert and combine in one launch. `expert_table`: [local experts] of two floats (scale, shift) held by
  /// this rank, read by MoeExpert::kTable only. Each expert output is rounded to the dtype, so fused and split give
  /// equal bits. Not with MoeLayout::kRows, whose rows and sums lie elsewhere.
  Status fused(const MoeTokens& tokens, MoeExpert expert, const float* expert_table, void* out, Stream stream);

 private:
  struct State;
  explicit MoeAllToAll(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
