// Attention of the decode phase: a few query tokens of each sequence over a paged cache of keys and values.
#pragma once

#include <cstdint>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/ops/flash_decode/plan.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// All are device pointers. Those to 16-bit or fp8 elements are 16-byte aligned.
struct FlashDecodeTensors {
  const void* q = nullptr;  ///< [batch, query_tokens, query_heads, head_dim]
  const void* k = nullptr;  ///< the cache, in FlashDecodeDesc::layout
  const void* v = nullptr;
  const std::int32_t* block_table = nullptr;  ///< [batch, max_pages]; only entries of pages that a token sees are used
  const std::int32_t* lengths = nullptr;      ///< [batch], 0 to max_pages * page_size; with kv_shards this rank's keys
  const float* k_scale = nullptr;             ///< [kv_heads], not below 0, with fp8 keys and values only
  const float* v_scale = nullptr;             ///< [kv_heads], likewise
  const float* sinks = nullptr;               ///< [query_heads], with FlashDecodeDesc::sinks only
  void* out = nullptr;                        ///< as q
  float* lse = nullptr;                       ///< [batch, query_tokens, query_heads], natural logarithm; or null
};

/// Not thread-safe. Calls of one instance must be in one stream; two calls that run at the same time are detected in
/// most cases, not in all. Calls are asynchronous, allocate nothing and can be captured: lengths and block table are
/// read by the kernel. Ranks that share keys make the same number of calls. A failed call (deadline, a peer that is
/// gone, a length or page that is not allowed) shows in World::status(); then World::recover() is needed. If ranks
/// share keys, kernels in other streams that wait for peers (another instance, NCCL) must fit on the device beside a
/// call's blocks (FlashDecodeDesc::max_sms), or a wait may end at its deadline.
class FlashDecode {
 public:
  /// Collective over the World's ranks; a World of one rank is enough. All ranks pass the same descriptor, but with
  /// kv_shards = 1 `pages` may differ. Takes plan.workspace_bytes, counter_bytes and inbox_bytes of the World's heap.
  /// The World must outlive the operator and must not move.
  static Result<FlashDecode> create(World& world, const FlashDecodeDesc& desc);
  FlashDecode(FlashDecode&&) noexcept;
  FlashDecode& operator=(FlashDecode&&) noexcept;
  /// Local: does not return the workspace to the heap. Use close() for that.
  ~FlashDecode();
  /// Collective. The streams that used the operator must be idle. Afterwards every call returns kMisuse, as after a
  /// move from the object.
  Status close();

  const FlashDecodePlan& plan() const;
  /// For tests: from the next call on, this rank does not send row `number` - 1 to its peers; 0: it sends all.
  void drop_put(int number);

  /// A row that sees no key gets zeros and an LSE of minus infinity, or the sink's. Outputs (out, lse) must not overlap
  /// inputs.
  Status operator()(const FlashDecodeTensors& tensors, Stream stream);

 private:
  struct State;
  explicit FlashDecode(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
