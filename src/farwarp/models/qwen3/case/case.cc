// Qwen3 as the harness sees it.
#include "farwarp/harness/case.h"

#include <fmt/format.h>

#include "farwarp/harness/params.h"
#include "farwarp/models/qwen3/case/run.h"
#include "farwarp/models/qwen3/decode/args.h"
#include "farwarp/models/qwen3/limits.h"

namespace farwarp::qwen3 {
namespace {

using harness::Choice;
using harness::ParamInfo;
using harness::Params;

const std::vector<ParamInfo> kParams = {
    {"model", "tiny",
     "auto (nano, nano4 or nano8 by the number of ranks)|nano|tiny|tiny64|nano4|nano8|qwen3-0.6b|qwen3-1.7b|qwen3-4b|"
     "qwen3-8b|qwen3-14b|qwen3-32b, with random weights"},
    {"batch", "3", "1 to 64 sequences"},
    {"prompt", "5", "tokens of the longest prompt; a bench prefills all but the last"},
    {"tokens", "6", "decoded in a launch, prompts included"},
    {"launches", "2", "1 to 10000, one after the other; each continues"},
    {"epsilon", "0.1", "0 (the model's) to 1: a check: of all norms, so large that it matters"},
    {"context", "512", "a bench: keys of each sequence before the first token"},
    {"zeros", "0",
     "0 to 65536: a check: positions of each sequence before its first token, whose keys are zeros; with a prompt of "
     "one "
     "token, without prefill"},
    {"dispatcher", "static",
     "static|graph|gang|both|all; both: static and graph, the same bits; all: gang too. gang: on gfx942"},
    {"splits", "0", "1 to 16 that a sequence's keys are cut into; 0: 16, fewer of streamed vectors"},
    {"vectors", "faster", "of activations: packets (up to 8 sequences), streamed, or whichever is faster"},
    {"max_sms", "0", "0 (all) or more"},
    {"temperature", "0",
     "0 (greedy), 0.001 to 1000; of three sequences the second is greedy, the third has twice as much"},
    {"top_k", "20", "1 to 64, with a temperature"},
    {"top_p", "1", "more than 0, up to 1, with a temperature"},
    {"prefill", "0", "0 (prompts are decoded), or 16 to 8192 tokens of a prompt at a time"},
    {"delay", "0",
     "0 to 1000000: longest random delay, in us, of each rank before each launch of one more pass, with the same bits; "
     "without prefill"},
    {"oracle", "1", "1, or 0: logits are not compared with float64; with delay, both or all"},
};

Result<CheckConfig> read_config(const Params& params) {
  enum class Dispatcher : std::uint8_t { kStatic, kGraph, kGang, kBoth, kAll };
  static constexpr Choice<Dispatcher> kDispatchers[] = {{"static", Dispatcher::kStatic},
                                                        {"graph", Dispatcher::kGraph},
                                                        {"gang", Dispatcher::kGang},
                                                        {"both", Dispatcher::kBoth},
                                                        {"all", Dispatcher::kAll}};
  static constexpr Choice<Qwen3Vectors> kVectors[] = {
      {"faster", Qwen3Vectors::kFaster}, {"packets", Qwen3Vectors::kPackets}, {"streamed", Qwen3Vectors::kStreamed}};
  harness::ParamReader reader(params, kParams);
  CheckConfig config;
  config.model = reader.text("model");
  const auto shapes = qwen3_config(config.model == "auto" ? "nano" : config.model);
  if (!shapes.ok()) reader.reject("model", config.model, kParams[0].allowed);
  config.batch = reader.small_integer("batch", 1, fleet::kMaxColumns);
  config.prompt = reader.small_integer("prompt", 1, 1 << 16);
  config.tokens = reader.small_integer("tokens", 1, 1 << 12);
  config.launches = reader.small_integer("launches", 1, 10000);
  config.epsilon = static_cast<float>(reader.number("epsilon", 0, 1));
  config.context = reader.small_integer("context", 0, qwen3::kMaxPositions);
  config.zeros = reader.small_integer("zeros", 0, 1 << 16);
  const Dispatcher dispatcher = reader.choice("dispatcher", kDispatchers);
  const auto has = [&](Dispatcher one) { return dispatcher == one || dispatcher == Dispatcher::kAll; };
  const bool both = dispatcher == Dispatcher::kBoth;
  if (has(Dispatcher::kStatic) || both) config.dispatchers.push_back(FleetDispatcher::kStatic);
  if (has(Dispatcher::kGraph) || both) config.dispatchers.push_back(FleetDispatcher::kGraph);
  if (has(Dispatcher::kGang)) config.dispatchers.push_back(FleetDispatcher::kGang);
  config.limits.splits = reader.small_integer("splits", 0, qwen3::kMaxSplits);
  config.limits.vectors = reader.choice("vectors", kVectors);
  config.limits.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  config.sampling.temperature = static_cast<float>(reader.number("temperature", 0, qwen3::kMaxTemperature));
  config.sampling.top_k = reader.small_integer("top_k", 1, qwen3::kMaxTopK);
  config.sampling.top_p = static_cast<float>(reader.number("top_p", 0, 1));
  if (config.sampling.temperature != 0) config.limits.most_top_k = config.sampling.top_k;
  config.limits.prefill_tokens = reader.small_integer("prefill", 0, qwen3::kMaxPrefillTokens);
  const int delay = reader.small_integer("delay", 0, 1'000'000);
  if (delay > 0 && config.limits.prefill_tokens > 0) reader.reject("delay", std::to_string(delay), "0 with prefill");
  if (config.zeros > 0 && (config.prompt > 1 || config.limits.prefill_tokens > 0))
    reader.reject("zeros", std::to_string(config.zeros), "0 with a prompt of several tokens, or with prefill");
  const int positions = config.prompt + config.zeros + config.launches * config.tokens;
  if (positions > qwen3::kMaxPositions)
    reader.reject("launches", reader.text("launches"),
                  fmt::format("so many that with prompt, zeros and tokens a sequence has at most {} positions",
                              qwen3::kMaxPositions));
  config.longest_delay_ns = static_cast<std::uint64_t>(delay) * 1000;
  config.oracle = reader.small_integer("oracle", 0, 1) == 1;
  if (!config.oracle && delay == 0 && config.dispatchers.size() < 2)
    reader.reject("oracle", "0", "1 without delay, with one dispatcher");
  if (!reader.status().ok()) return reader.status();
  config.config = *shapes;
  config.limits.sequences = config.batch;
  return config;
}

class Qwen3Case : public harness::Case {
 public:
  explicit Qwen3Case(const CheckConfig& config) : config_(config) {}
  std::string describe() const override {
    return fmt::format("{}, random weights, {} sequences, {} launches of {} tokens", config_.model, config_.batch,
                       config_.launches, config_.tokens);
  }
  harness::CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options) override {
    CheckConfig config = with_model(bootstrap->size());
    if (config.epsilon > 0) config.config.epsilon = config.epsilon;
    config.limits.positions = config.limits.prefill_tokens > 0
                                  ? config.prompt + config.launches * config.tokens
                                  : std::max(config.prompt, config.zeros + config.launches * config.tokens);
    return RankRun(config, std::move(bootstrap), options).check();
  }
  /// A sample that the host was late for is repeated, and goes on where the late one has ended.
  harness::BenchOutcome bench(std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
                              const harness::BenchOptions& bench_options) override {
    CheckConfig config = with_model(bootstrap->size());
    config.limits.positions = std::max(config.context + 8 * config.tokens, config.prompt);
    return RankRun(config, std::move(bootstrap), options).bench(bench_options);
  }

 private:
  CheckConfig with_model(int ranks) const {
    CheckConfig config = config_;
    if (config.model != "auto") return config;
    config.model = ranks == 1 ? "nano" : ranks <= 4 ? "nano4" : "nano8";
    config.config = *qwen3_config(config.model);
    return config;
  }

  CheckConfig config_;
};

const bool kRegistered = [] {
  harness::register_operator(
      {"qwen3",
       "decoding of Qwen3 by one kernel that stays on the device",
       kParams,
       [](const Params& params) -> Result<std::unique_ptr<harness::Case>> {
         const auto config = read_config(params);
         if (!config.ok()) return config.status();
         return std::unique_ptr<harness::Case>(new Qwen3Case(*config));
       },
       {harness::Fault::Kind::kDelay, harness::Fault::Kind::kKill, harness::Fault::Kind::kMismatch},
       nullptr,
       // Past a page of 16; prompts of three chunks, whose last page is not full; draws; past a key block of 128.
       {{{"model", "auto"}, {"batch", "2"}, {"prompt", "20"}, {"tokens", "9"}, {"max_sms", "2"}},
        {{"model", "auto"}, {"batch", "2"}, {"prompt", "38"}, {"tokens", "3"}, {"prefill", "16"}, {"max_sms", "2"}},
        {{"model", "auto"},
         {"prompt", "2"},
         {"tokens", "3"},
         {"launches", "1"},
         {"temperature", "1"},
         {"top_p", "0.9"},
         {"max_sms", "2"}},
        {{"model", "auto"},
         {"batch", "1"},
         {"prompt", "130"},
         {"tokens", "2"},
         {"launches", "1"},
         {"splits", "1"},
         {"prefill", "48"},
         {"max_sms", "2"}}}});
  return true;
}();

}  // namespace
}  // namespace farwarp::qwen3
