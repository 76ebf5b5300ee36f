// Where the weights and buffers of a Qwen3 lie, and the graph of a token.
#pragma once

#include <cstdint>

#include "farwarp/base/machine_shape.h"
#include "farwarp/fleet/graph.h"
#include "farwarp/models/qwen3/config.h"
#include "farwarp/models/qwen3/prefill/plan.h"

namespace farwarp {

/// How vectors reach workers (fleet/STREAM.md). Those of more than eight sequences stream.
enum class Qwen3Vectors : std::uint8_t {
  kFaster,   ///< of up to eight sequences packets, if they have room, unless streams are faster: plan.cc has the rule
  kPackets,  ///< refused where they have no room
  kStreamed
};

/// What a decoder has room for.
struct Qwen3Limits {
  int sequences = 1;     ///< at once, 1 to 64; on AMD to 32
  int positions = 1024;  ///< of a sequence, prompt included: 1 to 1,048,576
  /// Parts that the attention to a sequence is cut into, 1 to 16; bits depend on it. 0: the plan's choice. Of packets
  /// that is 16. Of streamed vectors it is the number of workers for each KV head of a sequence, if that saves more
  /// time at half of `positions` than the merge takes, else 1.
  int splits = 0;
  int max_sms = 0;                               ///< 0: all
  int most_top_k = 0;                            ///< of a sequence, 0 to 64; 0: no sequence has a temperature
  int prefill_tokens = 0;                        ///< of a chunk of Qwen3Decoder::prefill(), 16 to 8,192; 0: no prefill
  Qwen3Vectors vectors = Qwen3Vectors::kFaster;  ///< bits depend on it
};

/// Several ranks have a share each of the heads, of gate, up and down, and of the vocabulary.
struct Qwen3Plan {
  Qwen3Config config;
  Qwen3Limits limits;  ///< splits: not 0
  int ranks = 1;
  int query_heads = 0, kv_heads = 0, intermediate = 0;  ///< of a rank
  int head_rows = 0;  ///< of a rank: rank r has the tokens from r * head_rows on that exist
  int columns = 1;    ///< sequences, rounded up to a power of two; 16 at least if vectors stream
  int workers = 0;
  int threads = 0;
  int shared_bytes = 0;
  bool streams = false;  ///< whether vectors stream through shared memory
  bool gang = false;     ///< whether there are kernels for FleetDispatcher::kGang: workers have no loading thread
  int most_slices = 0;   ///< of all matrices: see fleet::MatrixShape
  int max_pages = 0;     ///< of a sequence
  int sharing = 1;       ///< workers that share the keys of a sequence's KV head, at most
  fleet::Graph graph;
  std::int64_t first_norms = 0;  ///< Norms of layer 0, in bytes from the weights' begin; final_norm likewise
  std::int64_t norm_pitch = 0;   ///< from layer to layer
  std::int64_t final_norm = 0;
  std::int64_t weight_bytes = 0;  ///< matrices and norms
  std::int64_t embedding_bytes = 0;
  std::int64_t cache_bytes = 0;
  Qwen3PrefillPlan prefill;

  /// Where the weights of a layer's norms lie, in bytes from the weights' begin; `end`: of the last.
  struct Norms {
    std::int64_t input, post_attention, q, k, end;
  };
  Norms norms_of(int layer) const;
  /// Columns whose attention workers share: those that can have a sequence; of packets all, at most three more.
  int columns_in_use() const { return streams ? limits.sequences : columns; }
  /// Bytes that a rank must read for a token: all matrices and norms, and the keys and values of `keys` positions in
  /// all.
  std::int64_t bytes_of_token(std::int64_t keys) const;
};

/// `ranks`: 1, 2, 4 or 8, all with the same shape. The plan is the same on all of them.
Result<Qwen3Plan> plan_qwen3(const Qwen3Config& config, const Qwen3Limits& limits, const MachineShape& shape,
                             int ranks = 1);

}  // namespace farwarp
