#include "decode_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "farwarp/harness/params.h"
#include "farwarp/machine/kept_file.h"
#include "farwarp/models/qwen3/decode/args.h"
#include "farwarp/models/qwen3/limits.h"
#include "farwarp/models/qwen3/weights/files.h"
#include "farwarp/world/host/world.h"
#include "farwarp/world/view.h"
#include "group.h"

namespace farwarp::cli {
namespace {

using Prompt = std::vector<std::int32_t>;

constexpr std::string_view kRandom = "random:";
constexpr FleetDispatcher kDispatchers[] = {FleetDispatcher::kStatic, FleetDispatcher::kGraph, FleetDispatcher::kGang};
constexpr int kMaxChunk = 2048;                // that a prefill is given by default
constexpr std::size_t kMaxDecodedPrompt = 64;  // longer ones are prefilled by default

/// For messages, which are cut off when they are long.
std::string shown(const std::string& text) {
  constexpr std::size_t kMost = 100;
  return harness::one_line(text.substr(0, kMost)) + (text.size() > kMost ? "..." : "");
}

/// `value` stays if the text is empty.
Status read_integer(const char* option, const std::string& text, std::int64_t low, std::int64_t high, int& value) {
  if (text.empty()) return {};
  const auto parsed = harness::parse_integer(option, text, low, high);
  if (parsed.ok()) value = static_cast<int>(*parsed);
  return parsed.status();
}

/// Numbers with commas or spaces between them.
Result<Prompt> read_ids(const std::string& what, std::string_view text, int vocabulary) {
  constexpr std::string_view kSpaces = " \t\r";
  Prompt ids;
  bool comma = false;  // a number has to follow
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
    if (text.empty() && !comma) return ids;
    const std::string_view word = text.substr(0, text.find_first_of(", \t\r"));
    const auto id = harness::parse_integer(fmt::format("{}token {}", what, ids.size()), word, 0, vocabulary - 1);
    if (!id.ok()) return id.status();
    ids.push_back(static_cast<std::int32_t>(*id));
    text.remove_prefix(word.size());
    text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
    comma = text.starts_with(',');
    if (comma) text.remove_prefix(1);
  }
}

/// One prompt from the command line, or one from each line of a file that is not empty.
Result<std::vector<Prompt>> read_prompts(const std::string& text, int vocabulary) {
  const std::string option = fmt::format("--prompt is '{}': ", shown(text));
  if (!is_prompt_file(text)) {
    auto ids = read_ids(option, text, vocabulary);
    if (!ids.ok()) return ids.status();
    if (ids->empty()) return invalid_argument(option + "allowed is at least one token");
    return std::vector<Prompt>{std::move(*ids)};
  }
  const auto file = read_text(text);
  if (!file.ok())
    return invalid_argument(
        fmt::format("{}allowed is a file that can be read, or token ids with commas between them ({})", option,
                    file.status().message()));
  std::vector<Prompt> prompts;
  std::string_view rest = *file;
  for (int line = 1; !rest.empty(); ++line) {
    const std::string_view words = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(words.size() + 1, rest.size()));
    auto ids = read_ids(fmt::format("{}line {}: ", option, line), words, vocabulary);
    if (!ids.ok()) return ids.status();
    if (!ids->empty()) prompts.push_back(std::move(*ids));
  }
  if (prompts.empty() || prompts.size() > fleet::kMaxColumns)
    return invalid_argument(fmt::format("{}the file has {} sequences; allowed is 1 to {}, one on each line", option,
                                        prompts.size(), fleet::kMaxColumns));
  return prompts;
}

/// --batch repeats a single prompt.
Status apply_batch(const std::string& text, std::vector<Prompt>& prompts) {
  int batch = static_cast<int>(prompts.size());
  if (Status status = read_integer("--batch", text, 1, fleet::kMaxColumns, batch); !status.ok()) return status;
  if (prompts.size() > 1 && batch != static_cast<int>(prompts.size()))
    return invalid_argument(
        fmt::format("--batch is '{}': allowed with {} prompts is {}", batch, prompts.size(), prompts.size()));
  prompts.resize(static_cast<std::size_t>(batch), prompts.front());
  return {};
}

Status read_ranks(const std::string& text, DecodeRequest& request) {
  int asked = 0;
  if (Status status = read_integer("--ranks", text, 1, kMaxRanks, asked); !status.ok()) return status;
  std::int64_t ranks = asked;
  auto group = join_group(ranks, WorldOptions{}.deadline);
  if (!group.ok()) return group.status();
  request.group = std::move(*group);
  if (ranks != 0) request.ranks = static_cast<int>(ranks);
  if (qwen3::can_share(request.ranks)) return {};
  return invalid_argument(request.group
                              ? fmt::format("the launched group has {} ranks; allowed: 1, 2, 4, 8", request.ranks)
                              : fmt::format("--ranks is '{}': allowed is 1|2|4|8", request.ranks));
}

Status read_sampling(const DecodeCommandOptions& options, DecodeRequest& request) {
  using qwen3::kLeastTemperature, qwen3::kMaxTemperature;
  Qwen3Sampling& sampling = request.sampling;
  double temperature = 0, top_p = 1;
  const auto read = [](const char* option, const std::string& text, double low, double high, double& value) -> Status {
    if (text.empty()) return {};
    const auto parsed = harness::parse_number(option, text, low, high);
    if (parsed.ok()) value = *parsed;
    return parsed.status();
  };
  if (Status status = read("--temperature", options.temperature, 0, kMaxTemperature, temperature); !status.ok())
    return status;
  if (temperature != 0 && static_cast<float>(temperature) < kLeastTemperature)
    return invalid_argument(fmt::format("--temperature is '{}': allowed is 0 (greedy), or {}..{}", temperature,
                                        kLeastTemperature, kMaxTemperature));
  const std::pair<const char*, const std::string*> others[] = {
      {"--top-k", &options.top_k}, {"--top-p", &options.top_p}, {"--sampling-seed", &options.sampling_seed}};
  for (const auto& [option, text] : others) {
    if (temperature == 0 && !text->empty())
      return invalid_argument(fmt::format("{} is '{}': allowed with --temperature {}..{}", option, shown(*text),
                                          kLeastTemperature, kMaxTemperature));
  }
  if (temperature == 0) return {};
  if (options.top_k.empty())
    return invalid_argument(
        fmt::format("--temperature is '{}': allowed with --top-k 1..{}, or 0", temperature, qwen3::kMaxTopK));
  Status status = read_integer("--top-k", options.top_k, 1, qwen3::kMaxTopK, sampling.top_k);
  if (status.ok()) status = read("--top-p", options.top_p, 0, 1, top_p);
  if (status.ok() && top_p == 0)
    status = invalid_argument("--top-p is '0': allowed is a number that is more than 0, up to 1");
  if (status.ok() && !options.sampling_seed.empty()) {
    const auto seed =
        harness::parse_integer("--sampling-seed", options.sampling_seed, 0, std::numeric_limits<std::int64_t>::max());
    status = seed.status();
    if (seed.ok()) sampling.seed = static_cast<std::uint64_t>(*seed);
  }
  sampling.temperature = static_cast<float>(temperature);
  sampling.top_p = static_cast<float>(top_p);
  request.limits.most_top_k = sampling.top_k;
  return status;
}

/// End tokens, and what the model's files ask for.
Status read_generation(const DecodeCommandOptions& options, DecodeRequest& request) {
  const Qwen3Config& config = request.model.config;
  if (!request.model.folder.empty()) {
    auto generation = read_qwen3_generation(request.model.folder, config);
    if (!generation.ok())
      return invalid_argument(fmt::format("--model is '{}': {}", shown(options.model), generation.status().message()));
    request.end_tokens = std::move(generation->end_tokens);
    if (generation->temperature != 0 && options.temperature.empty())
      request.note = fmt::format(
          "the model's generation_config.json asks for draws: --temperature {} --top-k {} --top-p {}; without "
          "--temperature the best tokens are taken",
          generation->temperature, generation->top_k, generation->top_p);
  }
  if (options.end_token.empty()) return {};
  if (options.end_token == "none") {
    request.end_tokens.clear();
    return {};
  }
  auto given =
      read_ids(fmt::format("--end-token is '{}': ", shown(options.end_token)), options.end_token, config.vocabulary);
  if (!given.ok()) return given.status();
  if (given->empty() || given->size() > qwen3::kMaxEndTokens)
    return invalid_argument(
        fmt::format("--end-token is '{}': allowed is none, or 1 to {} tokens with commas between them",
                    shown(options.end_token), qwen3::kMaxEndTokens));
  request.end_tokens = std::move(*given);
  return {};
}

/// Room for all positions that are decoded.
Status read_positions(const std::string& text, DecodeRequest& request) {
  request.limits.positions = 0;
  for (std::size_t i = 0; i < request.prompts.size(); ++i)
    request.limits.positions = std::max(request.limits.positions, request.positions_of(i));
  if (Status status = read_integer("--positions", text, 1, qwen3::kMaxPositions, request.limits.positions);
      !status.ok())
    return status;
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    const int positions = request.positions_of(i);
    if (positions > request.limits.positions || positions > qwen3::kMaxPositions)
      return invalid_argument(fmt::format(
          "--positions is '{}': prompt {} of {} tokens and --tokens {} need more: allowed is an integer in {}..{}",
          request.limits.positions, i, request.prompts[i].size(), request.tokens, positions, qwen3::kMaxPositions));
  }
  return {};
}

/// Chunks of about the same size, so that the last one has few rows without a token.
int prefill_tokens(std::size_t longest_prompt) {
  if (longest_prompt <= kMaxDecodedPrompt) return 0;
  const int tokens = static_cast<int>(longest_prompt) - 1;
  const int chunks = (tokens + kMaxChunk - 1) / kMaxChunk;
  return (tokens + chunks - 1) / chunks;
}

Status read_prefill(const DecodeCommandOptions& options, DecodeRequest& request) {
  std::size_t longest = 0;
  for (const Prompt& prompt : request.prompts) longest = std::max(longest, prompt.size());
  int& tokens = request.limits.prefill_tokens;
  if (options.prefill.empty()) {
    if (options.logits.empty()) tokens = prefill_tokens(longest);
    return {};
  }
  Status status = read_integer("--prefill", options.prefill, 0, qwen3::kMaxPrefillTokens, tokens);
  if (!status.ok()) return status;
  if (tokens != 0 && tokens < qwen3::kLeastPrefillTokens)
    return invalid_argument(fmt::format("--prefill is '{}': allowed is 0, or an integer in {}..{}", tokens,
                                        qwen3::kLeastPrefillTokens, qwen3::kMaxPrefillTokens));
  if (tokens != 0 && !options.logits.empty())
    return invalid_argument(
        fmt::format("--prefill is '{}': allowed with --logits is 0, because a prefill has no logits", tokens));
  return {};
}

}  // namespace

bool is_prompt_file(const std::string& text) { return text.find_first_not_of("0123456789,- ") != std::string::npos; }

int DecodeRequest::positions_of(std::size_t sequence) const {
  return static_cast<int>(prompts[sequence].size()) + std::max(tokens, 1) - 1;
}

int DecodeRequest::steps_of(std::size_t sequence) const {
  return prefills() ? std::max(tokens, 1) : positions_of(sequence);
}

int DecodeRequest::steps() const {
  int most = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) most = std::max(most, steps_of(i));
  return most;
}

Result<NamedModel> find_model(const std::string& text) {
  const bool random = text.starts_with(kRandom);
  NamedModel model{text, random ? "" : text, {}};
  const auto config = random ? qwen3_config(std::string_view(text).substr(kRandom.size())) : read_qwen3_config(text);
  if (!config.ok())
    return invalid_argument(fmt::format("--model is '{}': {}{}", shown(text), config.status().message(),
                                        random ? "" : fmt::format("; random weights: {}NAME", kRandom)));
  model.config = *config;
  return model;
}

Result<DecodeRequest> read_decode_request(const DecodeCommandOptions& options) {
  DecodeRequest request;
  if (Status status = read_ranks(options.ranks, request); !status.ok()) return status;
  if (Status status = read_sampling(options, request); !status.ok()) return status;
  const auto dispatcher = std::find_if(std::begin(kDispatchers), std::end(kDispatchers),
                                       [&](FleetDispatcher one) { return name_of(one) == options.dispatcher; });
  if (dispatcher == std::end(kDispatchers))
    return invalid_argument(
        fmt::format("--dispatcher is '{}': allowed is static|graph|gang", shown(options.dispatcher)));
  request.dispatcher = *dispatcher;
  request.logits = !options.logits.empty();
  request.tokens = 16;
  if (Status status = read_integer("--tokens", options.tokens, 0, qwen3::kMaxPositions, request.tokens); !status.ok())
    return status;
  auto model = find_model(options.model);
  if (!model.ok()) return model.status();
  request.model = std::move(*model);
  if (!options.seed.empty()) {
    const auto seed = harness::parse_integer("--seed", options.seed, 0, std::numeric_limits<std::int64_t>::max());
    if (!seed.ok()) return seed.status();
    if (!request.model.folder.empty())
      return invalid_argument(
          fmt::format("--seed is '{}': allowed with random weights, {}NAME, alone", *seed, kRandom));
    request.seed = static_cast<std::uint64_t>(*seed);
  }
  const int vocabulary = request.model.config.vocabulary;
  Status status = read_generation(options, request);
  if (!status.ok()) return status;
  auto prompts = read_prompts(options.prompt, vocabulary);
  if (!prompts.ok()) return prompts.status();
  request.prompts = std::move(*prompts);
  status = apply_batch(options.batch, request.prompts);
  request.limits.sequences = static_cast<int>(request.prompts.size());
  if (status.ok()) status = read_positions(options.positions, request);
  if (status.ok()) status = read_prefill(options, request);
  if (!status.ok()) return status;
  return request;
}

}  // namespace farwarp::cli
