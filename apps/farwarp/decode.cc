// farwarp decode: tokens of a Qwen3, with their time.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "commands.h"
#include "decode_request.h"
#include "farwarp/base/file.h"
#include "farwarp/base/sizes.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/harness/runner.h"
#include "farwarp/models/safetensors.h"
#include "json_sink.h"
#include "npy.h"
#include "print.h"
#include "target.h"
#include "version.h"

namespace farwarp::cli {
namespace {

constexpr std::chrono::milliseconds kPatience{60'000};  // for ranks that exchange logits
constexpr int kChunk = 16;                              // positions of a launch: so often are tokens printed

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Decoded {
  struct Sequence {
    std::vector<std::int32_t> tokens;  ///< after the prompt
    int positions = 0;                 ///< prefilled and decoded
    int prefilled = 0;
    bool ended = false;  ///< by the end token
  };
  std::vector<Sequence> sequences;
  std::string device;
  int steps = 0;  ///< positions decoded of the longest sequence
  int launches = 0;
  double seconds = 0;          ///< of decoding, on the host: from before each launch until its stream is idle
  double prefill_seconds = 0;  ///< likewise, of all prompts
  double load_seconds = 0;

  /// Decoded.
  std::int64_t positions() const {
    std::int64_t sum = 0;
    for (const Sequence& sequence : sequences) sum += sequence.positions - sequence.prefilled;
    return sum;
  }
  std::int64_t prefilled() const {
    std::int64_t sum = 0;
    for (const Sequence& sequence : sequences) sum += sequence.prefilled;
    return sum;
  }
};

/// A rank. The first one prints and keeps what all have decoded.
class Decoding : harness::RankRun {
 public:
  /// `text`: where the first rank prints tokens as they come. `logits`: where it writes those of all ranks, if they are
  /// wanted.
  Decoding(const DecodeRequest& request, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
           std::FILE* text, NpyFile* logits)
      : harness::RankRun(std::move(bootstrap), options, harness::Comparison(DType::kBf16, 1, 1)),
        request_(request),
        text_(text),
        file_(logits) {}

  Result<Decoded> run() {
    Status status = open();
    if (status.ok()) status = request_.prefills() ? prefill() : start();
    while (status.ok() && !finished())
      status = agree_if_several(decode_chunk(std::min(kChunk, request_.steps() - decoded_.steps)));
    clear_progress();
    status = close_operator(status, [this] { return decoder_->close(); });
    if (!status.ok()) return status;
    return decoded_;
  }

 private:
  Status open() {
    const auto device = Device::open(options_.target, rank_);
    if (!device.ok()) return device.status();
    decoded_.device = (*device)->model();
    decoded_.sequences.resize(request_.prompts.size());
    const Qwen3Config& config = request_.model.config;
    const auto plan = plan_qwen3(config, request_.limits, (*device)->shape(), ranks_);
    if (!plan.ok()) return plan.status();
    if (request_.dispatcher == FleetDispatcher::kGang && !plan->gang)
      return invalid_argument(
          fmt::format("--dispatcher is 'gang': allowed on {} is static|graph", name_of(options_.target)));
    const auto start = std::chrono::steady_clock::now();
    if (Status status = open_world(Qwen3Decoder::heap_bytes(*plan)); !status.ok()) return status;
    auto decoder = request_.model.folder.empty()
                       ? Qwen3Decoder::create_random(*world_, config, request_.limits, request_.seed)
                       : Qwen3Decoder::create(*world_, request_.model.folder, request_.limits);
    if (!decoder.ok()) return decoder.status();
    decoder_.emplace(std::move(*decoder));
    decoded_.load_seconds = seconds_since(start);
    const std::size_t choices = size(plan->columns) * kChunk;
    auto sampled = harness::DeviceBuffer::create(world_->device(), choices * 4);
    if (!sampled.ok()) return sampled.status();
    sampled_ = std::move(*sampled);
    if (!request_.logits) return {};
    auto logits = harness::DeviceBuffer::create(world_->device(), choices * size(config.vocabulary) * 4);
    if (!logits.ok()) return logits.status();
    logits_ = std::move(*logits);
    return {};
  }

  Qwen3Sampling sampling_of(std::size_t sequence) const {
    Qwen3Sampling sampling = request_.sampling;
    sampling.seed += sequence;
    return sampling;
  }

  /// Collective: no rank goes on if one has failed.
  Status agree_if_several(const Status& mine) { return ranks_ > 1 ? agree(mine) : mine; }

  Status start() {
    Status status;
    for (std::size_t i = 0; i < request_.prompts.size() && status.ok(); ++i)
      status = decoder_->start(static_cast<int>(i), request_.prompts[i], *stream_, sampling_of(i));
    return status;
  }

  /// Collective.
  Status prefill() {
    Status status = wait(patience());
    for (std::size_t i = 0; i < request_.prompts.size() && status.ok(); ++i) {
      const std::vector<std::int32_t>& prompt = request_.prompts[i];
      if (terminal_) print_text(stderr, "\r\x1b[Kprefill of prompt {} of {}", i + 1, request_.prompts.size());
      const auto start = std::chrono::steady_clock::now();
      status = decoder_->start(static_cast<int>(i), prompt, *stream_, sampling_of(i));
      if (status.ok()) status = decoder_->prefill(static_cast<int>(i), *stream_);
      const int chunks = static_cast<int>(prompt.size()) / request_.limits.prefill_tokens + 1;
      if (status.ok()) status = wait(patience(chunks));
      status = agree_if_several(status);
      decoded_.prefill_seconds += seconds_since(start);
      decoded_.sequences[i].positions = decoded_.sequences[i].prefilled = static_cast<int>(prompt.size()) - 1;
    }
    clear_progress();
    return status;
  }

  /// Whether all sequences have ended or all their tokens.
  bool finished() const {
    for (std::size_t i = 0; i < decoded_.sequences.size(); ++i) {
      if (!decoded_.sequences[i].ended && decoded_.steps < request_.steps_of(i)) return false;
    }
    return true;
  }

  Status decode_chunk(int tokens) {
    Qwen3Call call;
    call.tokens = tokens;
    call.end_tokens = request_.end_tokens;
    call.dispatcher = request_.dispatcher;
    call.sampled = sampled_.as<std::int32_t>();
    if (request_.logits) call.logits = logits_.as<float>();
    Status status = sampled_.poison(*stream_);  // -1 is left where a sequence has ended
    if (status.ok()) status = wait(patience());
    const auto start = std::chrono::steady_clock::now();
    if (status.ok()) status = decoder_->decode(call, *stream_);
    if (status.ok()) status = wait(patience(tokens));
    decoded_.seconds += seconds_since(start);
    std::vector<std::int32_t> sampled(sampled_.bytes() / 4);
    if (status.ok()) status = sampled_.download(sampled.data(), sampled_.bytes(), *stream_);
    status = agree_if_several(status);
    if (!status.ok()) return status;
    ++decoded_.launches;
    clear_progress();
    std::vector<int> counts;  // positions of each sequence in this chunk
    for (std::size_t i = 0; i < decoded_.sequences.size(); ++i)
      counts.push_back(take(i, {sampled.data() + i * size(tokens), size(tokens)}));
    const int steps = *std::max_element(counts.begin(), counts.end());
    if (request_.logits) status = write_logits(counts, steps);
    decoded_.steps += steps;
    if (terminal_ && rank_ == 0) print_text(stderr, "\r\x1b[K{} of {} positions", decoded_.steps, request_.steps());
    return status;
  }

  void clear_progress() const {
    if (terminal_ && rank_ == 0) print_text(stderr, "\r\x1b[K");
  }

  /// Keeps and prints the tokens of sequence `i`. Returns how many positions of it have been decoded.
  int take(std::size_t i, std::span<const std::int32_t> choices) {
    Decoded::Sequence& sequence = decoded_.sequences[i];
    const int prompt = static_cast<int>(request_.prompts[i].size());
    const std::size_t before = sequence.tokens.size();
    int count = 0;
    for (const std::int32_t choice : choices) {
      if (sequence.ended || sequence.positions == request_.positions_of(i)) break;
      ++sequence.positions;
      ++count;
      if (sequence.positions < prompt) continue;  // the prompt has the next input
      if (sequence.tokens.size() < size(request_.tokens)) sequence.tokens.push_back(choice);
      sequence.ended = std::count(request_.end_tokens.begin(), request_.end_tokens.end(), choice) > 0;
    }
    const std::span<const std::int32_t> fresh = std::span(sequence.tokens).subspan(before);
    if (rank_ > 0) return count;
    if (!fresh.empty()) print_text(text_, "{}: {}\n", i, fmt::join(fresh, " "));
    std::fflush(text_);
    return count;
  }

  Status write_logits(const std::vector<int>& counts, int steps) {
    const std::size_t vocabulary = size(request_.model.config.vocabulary), columns = size(decoder_->plan().columns);
    std::vector<float> logits(size(steps) * columns * vocabulary);
    Status status = logits_.download(logits.data(), logits.size() * 4, *stream_);
    if (ranks_ > 1) {
      status = agree(status);
      if (status.ok()) status = gather(logits);
    }
    if (rank_ > 0) return status;
    for (int step = 0; step < steps && status.ok(); ++step) {
      for (std::size_t i = 0; i < counts.size(); ++i) {
        float* const row = logits.data() + (size(step) * columns + i) * vocabulary;
        if (step >= counts[i]) std::fill(row, row + vocabulary, std::numeric_limits<float>::quiet_NaN());
      }
      status = file_->append({logits.data() + size(step) * columns * vocabulary, counts.size() * vocabulary});
    }
    return status;
  }

  /// Collective. Each rank has the logits of its own tokens; the first one gets all.
  Status gather(std::vector<float>& logits) {
    const std::size_t vocabulary = size(request_.model.config.vocabulary), share = size(decoder_->plan().head_rows);
    const auto begin_of = [&](int rank) { return std::min(size(rank) * share, vocabulary); };
    std::vector<std::byte> mine;
    for (std::size_t row = 0; row < logits.size(); row += vocabulary) {
      const auto* const from = reinterpret_cast<const std::byte*>(logits.data() + row);
      mine.insert(mine.end(), from + begin_of(rank_) * 4, from + begin_of(rank_ + 1) * 4);
    }
    const auto all = bootstrap_->allgather(mine, kPatience);
    if (!all.ok()) return all.status();
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::size_t begin = begin_of(rank), bytes = (begin_of(rank + 1) - begin) * 4;
      for (std::size_t row = 0; row * vocabulary < logits.size(); ++row)
        std::memcpy(logits.data() + row * vocabulary + begin, (*all)[size(rank)].data() + row * bytes, bytes);
    }
    return {};
  }

  const DecodeRequest& request_;
  std::FILE* text_;
  NpyFile* file_;
  std::optional<Qwen3Decoder> decoder_;
  harness::DeviceBuffer sampled_, logits_;
  Decoded decoded_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;  ///< progress is shown
};

nlohmann::json to_json(const DecodeRequest& request, TargetKind target, const Decoded& decoded) {
  nlohmann::json sequences = nlohmann::json::array();
  for (std::size_t i = 0; i < decoded.sequences.size(); ++i) {
    const Decoded::Sequence& sequence = decoded.sequences[i];
    sequences.push_back({{"prompt", request.prompts[i]},
                         {"tokens", sequence.tokens},
                         {"positions", sequence.positions},
                         {"ended", sequence.ended}});
  }
  return {{"model", request.model.name},
          {"target", name_of(target)},
          {"device", decoded.device},
          {"build", build_description()},
          {"ranks", request.ranks},
          {"temperature", request.sampling.temperature},
          {"top_k", request.sampling.top_k},
          {"top_p", request.sampling.top_p},
          {"sampling_seed", request.sampling.seed},
          {"dispatcher", name_of(request.dispatcher)},
          {"end_tokens", request.end_tokens},
          {"sequences", sequences},
          {"prefill_tokens", request.limits.prefill_tokens},
          {"prefilled", decoded.prefilled()},
          {"prefill_seconds", decoded.prefill_seconds},
          {"steps", decoded.steps},
          {"launches", decoded.launches},
          {"load_seconds", decoded.load_seconds},
          {"seconds", decoded.seconds},
          {"seconds_per_step", decoded.seconds / decoded.steps},
          {"tokens_per_second", static_cast<double>(decoded.positions()) / decoded.seconds}};
}

/// Loads, decodes, and prints the tokens and a summary, of a launched group on its first rank.
Result<Decoded> decode(const DecodeRequest& request, const ChosenTarget& target, std::FILE* text, NpyFile* logits) {
  harness::RunOptions options;
  options.target = target.target;
  options.ranks = request.ranks;
  if (is_emulated(target.target)) harness::use_fast_schedule();
  Decoded decoded;
  const auto decode_as_rank = [&](std::shared_ptr<Bootstrap> bootstrap) -> Status {
    const bool first = bootstrap->rank() == 0;
    const auto result = Decoding(request, std::move(bootstrap), options, text, logits).run();
    if (result.ok() && first) decoded = *result;
    return result.status();
  };
  const Status status = request.group ? decode_as_rank(request.group) : run_ranks(request.ranks, decode_as_rank);
  if (!status.ok()) return status;
  if (!request.prints()) return decoded;
  if (const std::int64_t tokens = decoded.prefilled(); tokens > 0)
    print_text(text,
               "prefill of {} tokens of prompts, {} at a time: {:.3f} s, {:.3f} ms a token, {:.1f} tokens/s; the "
               "positions below are those after it\n",
               tokens, request.limits.prefill_tokens, decoded.prefill_seconds,
               1e3 * decoded.prefill_seconds / static_cast<double>(tokens),
               static_cast<double>(tokens) / decoded.prefill_seconds);
  print_text(text,
             "{} on {}{}: sequences {}, positions {} ({}), launches {}: {:.3f} s, {:.3f} ms a position, {:.1f} "
             "tokens/s; loaded in {:.1f} s\n(time of the host, from before each launch until the device was idle)\n",
             request.model.name, request.ranks > 1 ? fmt::format("{} x ", request.ranks) : "", decoded.device,
             decoded.sequences.size(), decoded.steps,
             request.prefills() ? "without those prefilled" : "prompts included", decoded.launches, decoded.seconds,
             1e3 * decoded.seconds / decoded.steps, static_cast<double>(decoded.positions()) / decoded.seconds,
             decoded.load_seconds);
  if (is_emulated(target.target)) print_text(text, "on the emulator: this time says nothing of any GPU\n");
  return decoded;
}

/// What the command reads.
std::vector<std::string> files_of(const DecodeRequest& request, const DecodeCommandOptions& given) {
  std::vector<std::string> files;
  if (is_prompt_file(given.prompt)) files.push_back(given.prompt);
  const std::string& folder = request.model.folder;
  if (folder.empty()) return files;
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors.index.json"})
    files.push_back(folder + "/" + name);
  if (const auto shards = Safetensors::files_of(folder); shards.ok()) {
    for (const std::string& shard : *shards) files.push_back(folder + "/" + shard);
  }
  return files;
}

}  // namespace

int decode_command(const DecodeCommandOptions& given) {
  const auto request = read_decode_request(given);
  if (!request.ok()) return fail(request.status());
  const auto target = choose_target(given.target, request->ranks);
  if (!target.ok()) return fail(target.status());
  JsonSink json;
  const std::vector<std::string> read = files_of(*request, given);
  if (Status status = json.open(request->prints() ? given.json : "", read); !status.ok()) return fail(status);
  std::optional<NpyFile> logits;
  if (request->logits && request->prints()) {
    if (Status status = check_output("--logits", given.logits, read); !status.ok()) return fail(status);
    const auto place = [](const std::string& path) { return std::filesystem::absolute(path).lexically_normal(); };
    if (same_file(given.logits, given.json) || (!given.json.empty() && place(given.logits) == place(given.json)))
      return fail(invalid_argument(fmt::format("--logits is '{}': --json is the same file", given.logits)));
    auto created = NpyFile::create(given.logits);
    if (!created.ok()) return fail({created.status().code(), "--logits: " + created.status().message()});
    logits.emplace(std::move(*created));
  }
  for (const std::string& note : {target->why, request->note}) {
    if (!note.empty() && request->prints()) print_text(stderr, "{}\n", note);
  }
  report_interrupts();
  std::FILE* const text = json.to_stdout() ? stderr : stdout;
  const auto decoded = decode(*request, *target, text, logits ? &*logits : nullptr);
  if (!decoded.ok()) return fail(decoded.status());
  if (!request->prints()) return 0;
  Status written;
  if (logits)
    written = logits->close(
        {decoded->steps, static_cast<std::int64_t>(request->prompts.size()), request->model.config.vocabulary});
  if (written.ok()) written = json.write(to_json(*request, target->target, *decoded).dump(2) + "\n");
  return written.ok() ? 0 : fail(written);
}

}  // namespace farwarp::cli
