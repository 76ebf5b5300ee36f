// Attention of many queries to many keys: prefill forward, on one device.
#pragma once

#include <cstdint>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/attention/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// The tensors of a call: device pointers, 16-byte aligned. Those that the descriptor does not ask for are null.
struct AttentionTensors {
  const void* q = nullptr;  ///< [batch, max_queries, heads, head_dim], or [total_queries, heads, head_dim] if ragged
  const void* k = nullptr;  ///< [batch, max_keys, kv_heads, head_dim], [total_keys, ...], or [pages, page_size, ...]
  const void* v = nullptr;  ///< as k
  void* out = nullptr;      ///< as q
  float* lse = nullptr;     ///< has_lse: [batch, heads, max_queries], or [heads, total_queries] if q is ragged
  const float* sinks = nullptr;                ///< has_sinks: [heads]
  const std::int32_t* query_starts = nullptr;  ///< ragged_queries: [batch + 1] rows of q, the last one total_queries
  const std::int32_t* key_starts = nullptr;    ///< ragged_keys: [batch + 1] rows of k
  const std::int32_t* key_counts = nullptr;    ///< has_key_counts: [batch], 0 to max_keys
  const std::int32_t* block_table = nullptr;   ///< page_size > 0: [batch, plan().table_pitch()] page numbers;
                                               ///< entries of pages that no query sees are not read
};

/// Not thread-safe. Calls of one instance must be in one stream; two calls that run at the same time are detected in
/// most cases, not in all. Calls are asynchronous, allocate nothing and can be captured. The World's deadline bounds
/// each wait of a block, not the launch: it must be longer than a block takes for one work.
class Attention {
 public:
  /// Collective over the World's ranks; a World of one rank is enough. The ranks' attentions are independent, but all
  /// ranks must pass the same descriptor. Takes plan.workspace_bytes of the World's heap. The World must outlive the
  /// operator and must not move.
  static Result<Attention> create(World& world, const AttentionDesc& desc);
  Attention(Attention&&) noexcept;
  Attention& operator=(Attention&&) noexcept;
  /// Local: does not return the workspace to the heap. Use close() for that.
  ~Attention();
  /// Collective. The streams that used the operator must be idle. Afterwards every call returns kMisuse, as after a
  /// move from the object.
  Status close();

  const AttentionPlan& plan() const;

  /// A query without a key gets zeros, and minus infinity (or its head's sink) as its logarithm. A NaN in a query makes
  /// that query's results NaN, and no others. Counts and page numbers in device memory that are not allowed make
  /// World::status() kBadInput; nothing outside the tensors is then read or written. Outputs (out, lse) must not
  /// overlap inputs.
  Status operator()(const AttentionTensors& tensors, Stream stream);

 private:
  struct State;
  explicit Attention(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
