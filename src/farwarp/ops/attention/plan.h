// Desc + machine -> plan of attention. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>

#include "farwarp/base/half.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/ops/attention/mapping.h"

namespace farwarp {

/// out = softmax(scale * q * k^T + mask) * v for each sequence and query head; scores and sums in fp32, rounded once.
/// Right as long as scores, logits and sums of probability * |v| are finite in fp32, probabilities relative to a 1024th
/// of the largest so far; else infinity or NaN.
///
/// Tensors are [batch, rows, heads, head_dim] with contiguous heads. Query i of a sequence is aligned with key i + keys
/// - queries: the last query with the last key, also if the sequence has more queries than keys.
struct AttentionDesc {
  int batch = 0;
  int heads = 0;               ///< of q
  int kv_heads = 0;            ///< divides `heads`
  int head_dim = 0;            ///< a multiple of 8 up to 256; on CDNA up to 128
  int max_queries = 0;         ///< rows of q of a sequence; the most, if they are ragged
  int max_keys = 0;            ///< rows of k and v of a sequence; the most, if counts are in device memory
  DType dtype = DType::kBf16;  ///< of q, k, v and out: kBf16 or kF16
  bool causal = false;         ///< a query attends to no key after its own: window_right = 0
  int window_left = -1;        ///< keys before a query's own that it attends to; -1: all
  int window_right = -1;       ///< keys after its own; -1: all
  float scale = 0;             ///< up to 2e38; 0: 1 / sqrt(head_dim)
  float softcap =
      0;  ///< logits become softcap * tanh(logit / softcap), before masks: 0.001 to 1e6; 0: none. Not on CDNA
  bool has_sinks = false;       ///< a logit for each query head that only adds to the denominator
  bool has_lse = false;         ///< the logarithm of the denominators is written, too
  bool ragged_queries = false;  ///< sequences follow each other in q and out: [total_queries, heads, head_dim]
  int total_queries = 0;        ///< rows of a ragged q
  bool ragged_keys = false;     ///< likewise k and v
  int total_keys = 0;
  bool has_key_counts =
      false;  ///< the sequences' keys are fewer than max_keys; counts are in device memory. Always so if paged
  int page_size =
      0;  ///< k and v are [pages, page_size, kv_heads, head_dim]: 16, 32, 64 or multiples of 128; 0: not paged
  int pages = 0;
  // Elements from one row to the next of q, k, v and out, multiples of 8; 0: heads * head_dim.
  std::int64_t q_pitch = 0;
  std::int64_t k_pitch = 0;
  std::int64_t v_pitch = 0;
  std::int64_t out_pitch = 0;
  int max_sms = 0;  ///< most blocks of a launch; 0: all multiprocessors
  /// Which works run at the same time; without one, the plan chooses by the machine's caches.
  bool choose_mapping = true;
  attention::Mapping mapping = attention::Mapping::kHeadFirstSwizzled;
};

struct AttentionPlan {
  AttentionDesc desc;  ///< with pitches, windows, scale and mapping filled in
  std::string kernel;
  int blocks = 0;
  int threads = 0;
  int shared_bytes = 0;
  int step_keys = 0;      ///< keys that a block multiplies at a time
  int block_queries = 0;  ///< rows of q of a block
  bool folded = false;    ///< long works first
  int section = 1;        ///< heads among which long works come first: mapping.h
  std::int64_t workspace_bytes = 0;

  attention::WorkGrid grid(const MachineShape& shape) const;
  int table_pitch() const;  ///< entries of a sequence in the block table; 0 if not paged
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<AttentionPlan> plan_attention(const AttentionDesc& desc, const MachineShape& shape);

}  // namespace farwarp
