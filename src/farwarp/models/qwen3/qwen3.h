// Decodes Qwen3 with one kernel that stays on the device for many tokens. README.md describes it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farwarp/fleet/dispatcher.h"
#include "farwarp/models/qwen3/plan.h"
#include "farwarp/runtime/device.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

class Safetensors;

/// How the tokens of a sequence are chosen. The logits are divided by the temperature; of the top_k best tokens the
/// smallest set of best ones is kept whose probability, among these top_k, reaches top_p; one of the set is drawn. Of
/// equal logits the lower token is the better one. The draw depends on the logits, `seed` and the position alone.
struct Qwen3Sampling {
  float temperature = 0;   ///< 0: the best token, and the rest is ignored; else 0.001 to 1000
  int top_k = 0;           ///< 1 to Qwen3Limits.most_top_k
  float top_p = 1;         ///< more than 0, up to 1
  std::uint64_t seed = 0;  ///< sequences with equal seeds get equal random numbers at equal positions
};

struct Qwen3Call {
  int tokens = 1;                                 ///< of each sequence, 1 to 65,536
  std::span<const std::int32_t> end_tokens = {};  ///< up to 8: each ends a sequence
  FleetDispatcher dispatcher = FleetDispatcher::kStatic;
  /// Device, [columns][tokens]: choices, also while inputs are a prompt's; of an ended sequence unchanged.
  std::int32_t* sampled = nullptr;
  /// Device, [tokens][columns][vocabulary], or null; a rank fills those of its tokens (Qwen3Plan::head_rows).
  float* logits = nullptr;
};

/// One model on the devices of a World, each with a share of its weights and of the cache of up to 64 sequences. All
/// ranks make the same calls, with the same prompts, limits and sampling, and get the same tokens.
class Qwen3Decoder {
 public:
  /// Collective. Random weights from `seed` (weights/tensors.h), the same for the same seed on any machine. Takes
  /// plan().weight_bytes + embedding_bytes + cache_bytes + prefill.memory_bytes of device memory beside the World's
  /// heap, of which it takes heap_bytes(); and, smaller, rotations (512 bytes a position), prompts, page tables, and
  /// vectors that are plain memory.
  static Result<Qwen3Decoder> create_random(World& world, const Qwen3Config& config, const Qwen3Limits& limits,
                                            std::uint64_t seed);
  /// Collective. The model in `folder`: config.json and safetensors, as Hugging Face's Qwen3ForCausalLM saves them,
  /// bf16. kInvalidArgument names the file and what is wrong.
  static Result<Qwen3Decoder> create(World& world, const std::string& folder, const Qwen3Limits& limits);
  static std::int64_t heap_bytes(const Qwen3Plan& plan) {
    return (plan.graph.packet_bytes + 255) / 256 * 256 + plan.prefill.heap_bytes;
  }

  Qwen3Decoder(Qwen3Decoder&&) noexcept;
  Qwen3Decoder& operator=(Qwen3Decoder&&) noexcept;
  ~Qwen3Decoder();
  /// Collective; streams that used it must be idle.
  Status close();

  const Qwen3Plan& plan() const;

  /// Starts a sequence in place of what `column` had. Its prompt is 1 to limits.positions tokens. Waits for `stream`.
  /// kInvalidArgument if `sampling` has a temperature and limits.most_top_k is less than its top_k.
  Status start(int column, std::span<const std::int32_t> prompt, Stream stream, const Qwen3Sampling& sampling = {});
  /// Enqueues the prefill of the prompt that `column` was started with: gemm and attention bring the keys and values of
  /// all its tokens but the last into the cache, in chunks of limits.prefill_tokens. decode() goes on with the last
  /// token, also if the sequence was farther. Other sequences may be anywhere. Can be captured. kMisuse if
  /// limits.prefill_tokens is 0, or without a sequence. After a failed prefill the decoder can only be closed.
  Status prefill(int column, Stream stream);
  /// For benches and tests: starts a sequence whose next input is `token`, at position `position`, 0 to
  /// limits.positions - 1. The keys and values of the positions before it are whatever the cache holds. Waits for
  /// `stream`.
  Status start_with_any_keys(int column, int position, std::int32_t token, Stream stream,
                             const Qwen3Sampling& sampling = {});
  /// Ends a sequence. Waits for `stream`.
  Status stop(int column, Stream stream);

  /// Enqueues the decoding of call.tokens tokens of every sequence. Each input is the prompt's next token, or, after
  /// the prompt, the choice before. kInvalidArgument if a sequence has no room for them. If a call fails on the device,
  /// World::status() says why; after World::recover() all sequences have ended, and start() begins new ones.
  Status decode(const Qwen3Call& call, Stream stream);
  /// For checks: the hidden vectors after the last token's last layer, bf16 [hidden / 4][columns][4]. All ranks have
  /// the same bits. Waits for `stream`.
  Status hidden(std::vector<std::uint16_t>& to, Stream stream) const;

 private:
  struct State;
  static Result<Qwen3Decoder> create_from(World& world, const Result<Qwen3Plan>& plan, const Safetensors* files,
                                          std::uint64_t seed);
  explicit Qwen3Decoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
