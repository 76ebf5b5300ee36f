// The arguments of the kernels that decode Qwen3.
#pragma once

#include <cstdint>

#include "farwarp/fleet/launch.h"
#include "farwarp/fleet/sites.h"

namespace farwarp::qwen3 {

enum class Kind : std::int32_t {
  kEmbed,
  kQkv,
  kAttend,
  kMerge,
  kOut,
  kGateUp,
  kDown,
  kHead,
  kNextInputs,
  // Of a decoder that samples.
  kSelect,
  kChoose
};

/// Wait sites of the ledger, after the runtime's.
enum Site : std::uint32_t {
  kSiteQkv = fleet::kModelSites,
  kSiteHeads,
  kSitePartial,
  kSiteOut,
  kSiteGateUp,
  kSiteDown,
  kSiteHead,
  kSiteCandidate,
  kSiteLogits,
  kSiteOwnLogits,
  kSiteChosen
};
inline constexpr auto kSiteNames = fleet::with_model_sites(
    {"the input of q, k, v", "q, k, v of a head", "a partial output of attention", "attention's output",
     "the input of gate and up", "the input of down", "the input of the head", "a worker's best token", "logits",
     "the logits of a worker", "a drawn token"});

inline constexpr int kPageKeys = 16;
inline constexpr int kBlockKeys = 128;  ///< of a key block: a worker attends to these at once
inline constexpr int kMaxSplits = 16;
/// Of a launch; a thread waits for at most 8 candidates of a rank's workers, of streamed vectors 64.
inline constexpr int kMaxWorkers = 256;
inline constexpr int kMaxHeadsPerKvHead = 8;  ///< query heads of a KV head
inline constexpr int kMaxHeadDim = 128;
inline constexpr int kMaxColumnsWithoutBulkCopy = 32;  ///< 64 KB of shared memory are too few for more
inline constexpr int kMaxTopK = 64;                    ///< candidates of a draw
inline constexpr int kMaxEndTokens = 8;                ///< that end a sequence
static_assert(kBlockKeys == fleet::kWarps * kPageKeys);

/// Of one KV head, keys and values.
constexpr int page_bytes(int head_dim) { return 2 * kPageKeys * head_dim * 2; }
constexpr int key_blocks_of(int keys) { return (keys + kBlockKeys - 1) / kBlockKeys; }

// What a decoder that samples sends beside a greedy one.
/// Row `row` of a tile of the head, which is even, and the next one: in fours from the logits' begin.
constexpr std::int64_t logits_at(int columns, int tile, int column, int row) {
  return fleet::rank_sums_at(columns, 0, 0, tile, column, row);
}
/// Candidate `place` of a worker's for a column, 0 the best, in packets from the candidates' begin. Those of one place
/// of all workers lie together.
constexpr std::int64_t candidate_at(int columns, int workers, int most_top_k, int rank, int column, int place,
                                    int worker) {
  return ((std::int64_t{rank} * columns + column) * most_top_k + place) * workers + worker;
}

/// A sequence between launches; a launch continues where the one before has ended.
struct SequenceState {
  std::int32_t token;     ///< the next input
  std::int32_t position;  ///< of that token
  std::int32_t alive;     ///< 0: no sequence, or it has ended
  std::int32_t prompt;    ///< tokens of its prompt: inputs are the prompt's, not the samples
};
/// How a sequence's tokens are drawn; all launches read it.
struct DrawState {
  std::uint64_t seed;
  float scale_log2;  ///< of logits: log2(e) / temperature; 0: the best token is chosen
  float top_p;
};
struct DecodeState {
  SequenceState sequences[fleet::kMaxColumns];
  // Of a decoder that samples.
  std::int32_t top_k[fleet::kMaxColumns];
  DrawState draws[fleet::kMaxColumns];
};

struct Args {
  fleet::Launch launch;
  const std::uint16_t* embedding;  ///< bf16 [vocabulary][hidden]
  const float* rotations;          ///< [positions][head_dim / 2]: cosine, sine
  std::byte* cache;                ///< bf16 [layers][pages][kv_heads][K, V][head_dim / 16][fragment]
  const std::int32_t* page_table;  ///< [columns][max_pages]; max_pages is a multiple of the 8 of a key block
  std::int64_t q_norm, k_norm;     ///< of layer 0, in bytes from the weights; layers follow each other at norm_pitch
  std::int64_t norm_pitch;
  DecodeState* state;
  const std::int32_t* prompts;  ///< [columns][max_prompt]
  std::int32_t* sampled;        ///< [columns][tokens], columns sampled_pitch apart
  std::int32_t sampled_pitch;
  float* logits;  ///< [tokens][columns][vocabulary], or null; a rank stores those of its tokens
  std::int32_t hidden, head_dim, vocabulary;
  std::int32_t query_heads, kv_heads, intermediate;  ///< of this rank
  std::int32_t first_token;                          ///< of this rank's rows of the head
  std::int32_t pages, max_pages, max_prompt;
  std::int32_t splits;   ///< of a sequence: key block i is of split i % splits
  std::int32_t sharing;  ///< workers that share a sequence's KV head: attention has so many units of each
  std::int32_t end_tokens[kMaxEndTokens];  ///< each ends a sequence; -1: none
  float scale_log2;                        ///< of scores: head_dim^-0.5 * log2(e)
  std::int32_t most_top_k;      ///< candidates of a worker and column, for a decoder that samples: candidate_at()
  std::int32_t columns_in_use;  ///< Qwen3Plan::columns_in_use()
};

}  // namespace farwarp::qwen3
