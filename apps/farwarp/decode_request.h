// What `farwarp decode` is asked for, and the models that it and `farwarp graph` take.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/world/host/bootstrap.h"

namespace farwarp::cli {

struct NamedModel {
  std::string name;    ///< as the user gave it
  std::string folder;  ///< empty: random weights
  Qwen3Config config;
};

/// "random:NAME", or a folder as Hugging Face saves it, of which only config.json is read.
Result<NamedModel> find_model(const std::string& text);

struct DecodeRequest {
  NamedModel model;
  std::vector<std::vector<std::int32_t>> prompts;  ///< of each sequence
  int tokens = 0;                                  ///< after each prompt
  std::vector<std::int32_t> end_tokens;            ///< the caller's, or else the model's
  std::string note;                                ///< what the model asks for and does not get; empty: nothing
  Qwen3Limits limits;
  FleetDispatcher dispatcher = FleetDispatcher::kStatic;
  std::uint64_t seed = 1;
  int ranks = 1;
  std::shared_ptr<Bootstrap> group;  ///< of launched processes, or nullptr: all ranks are this process's
  bool logits = false;               ///< whether they are written
  Qwen3Sampling sampling;            ///< of the first sequence; each further one has the next seed

  bool prefills() const { return limits.prefill_tokens > 0; }
  /// Whether this process prints and writes: it has the first rank.
  bool prints() const { return group == nullptr || group->rank() == 0; }
  /// Positions of a sequence: its last token is a choice, and no input any more.
  int positions_of(std::size_t sequence) const;
  /// Those that are decoded: all, or with prefill from the prompt's last token on.
  int steps_of(std::size_t sequence) const;
  int steps() const;  ///< of the longest sequence
};

/// Whether --prompt names a file: it is no list of token ids.
bool is_prompt_file(const std::string& text);

Result<DecodeRequest> read_decode_request(const DecodeCommandOptions& options);

}  // namespace farwarp::cli
