// Lesson 04 as an operator of the command line: farwarp check lesson-04, farwarp bench lesson-04 --set rung=3.
#include "farwarp/harness/case.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/harness/params.h"
#include "run.h"

namespace farwarp::lessons::ladder {
namespace {

using harness::Choice;
using moe::RoutingKind;
using moe::TokenCounts;

constexpr int kMaxMessages = 1 << 24;  // so that the messages of 8 ranks can be counted in 32 bits

const std::vector<harness::ParamInfo> kParams = {
    {"rung", "all", "all|1|2|3|4|5|6|7"},
    {"num_experts", "16", "1..4096"},
    {"experts_per_token", "4", "1..32, at most num_experts"},
    {"hidden_dim", "128", "a multiple of 8"},
    {"max_num_tokens", "8", "1..65535, of each rank"},
    {"routing", "uniform", "uniform|zipf|repeated|one_expert|one_rank|skipped|partial"},
    {"tokens", "auto", "auto|uniform|full|empty_ranks; auto: uniform in a check, full in a bench"},
    {"segments", "0", "0 (as many as give all warps work) to 1024: equal parts of a row, at most"},
    {"max_sms", "0", "0 (all) or more"},
    {"graph", "0", "1: capture each call and replay it twice; checks only"},
};

Result<Config> read_config(const harness::Params& params) {
  static constexpr Choice<RoutingKind> kRoutings[] = {
      {"uniform", RoutingKind::kUniform},   {"zipf", RoutingKind::kZipf},
      {"repeated", RoutingKind::kRepeated}, {"one_expert", RoutingKind::kOneExpert},
      {"one_rank", RoutingKind::kOneRank},  {"skipped", RoutingKind::kSkipped},
      {"partial", RoutingKind::kPartial}};
  static constexpr Choice<TokenCounts> kTokens[] = {{"auto", TokenCounts::kAuto},
                                                    {"uniform", TokenCounts::kUniform},
                                                    {"full", TokenCounts::kFull},
                                                    {"empty_ranks", TokenCounts::kEmptyRanks}};
  static constexpr Choice<int> kRungChoices[] = {{"all", 0}, {"1", 1}, {"2", 2}, {"3", 3},
                                                 {"4", 4},   {"5", 5}, {"6", 6}, {"7", 7}};
  harness::ParamReader reader(params, kParams);
  Config config;
  if (const int rung = reader.choice("rung", kRungChoices); rung != 0) config.first_rung = config.last_rung = rung;
  MoeAllToAllDesc& desc = config.desc;
  desc.num_experts = reader.small_integer("num_experts", 1, 4096);
  desc.experts_per_token = reader.small_integer("experts_per_token", 1, kMaxTopK);
  desc.hidden = reader.small_integer("hidden_dim", 8, 1 << 20);
  desc.max_tokens = reader.small_integer("max_num_tokens", 1, 65535);
  desc.dtype = DType::kBf16;
  config.inputs.routing = reader.choice("routing", kRoutings);
  config.inputs.tokens = reader.choice("tokens", kTokens);
  config.segments = reader.small_integer("segments", 0, 1024);
  config.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  config.graph = reader.flag("graph");
  if (desc.hidden % 8 != 0) reader.reject("hidden_dim", reader.text("hidden_dim"), "a multiple of 8");
  if (desc.experts_per_token > desc.num_experts) {
    reader.reject("experts_per_token", reader.text("experts_per_token"), "1..num_experts");
  }
  if (std::int64_t{desc.max_tokens} * desc.experts_per_token * config.segments > kMaxMessages) {
    reader.reject(
        "segments", reader.text("segments"),
        fmt::format("0, or so many that max_num_tokens * experts_per_token * segments is at most {}", kMaxMessages));
  }
  if (!reader.status().ok()) return reader.status();
  return config;
}

class LadderCase final : public harness::Case {
 public:
  explicit LadderCase(const Config& config) : config_(config) {}

  std::string describe() const override {
    const MoeAllToAllDesc& desc = config_.desc;
    return fmt::format("lesson-04, rungs {} to {}, {} experts, top-{}, hidden {}, at most {} tokens",
                       config_.first_rung, config_.last_rung, desc.num_experts, desc.experts_per_token, desc.hidden,
                       desc.max_tokens);
  }

  harness::CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options) override {
    constexpr int kInFlight = 8;
    return RankRun(config_, std::move(bootstrap), options, std::min(options.calls, kInFlight)).check();
  }

  harness::BenchOutcome bench(std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
                              const harness::BenchOptions& bench_options) override {
    // Samples use different inputs, as many sets as the host can make in reasonable time.
    constexpr std::int64_t kPreparedElements = 32 << 20;
    constexpr int kFewest = 4;
    const std::int64_t elements = static_cast<std::int64_t>(config_.desc.max_tokens) * config_.desc.hidden;
    const auto sets = std::clamp<std::int64_t>(kPreparedElements / elements, std::min(kFewest, bench_options.samples),
                                               bench_options.samples);
    Config config = config_;
    if (config.inputs.tokens == TokenCounts::kAuto) config.inputs.tokens = TokenCounts::kFull;
    return RankRun(config, std::move(bootstrap), options, static_cast<int>(sets)).bench(bench_options);
  }

 private:
  Config config_;
};

[[maybe_unused]] const bool registered = [] {
  using enum harness::Fault::Kind;
  harness::register_operator({"lesson-04",
                              "the MoE all-to-all in seven rungs: what each idea is worth",
                              kParams,
                              [](const harness::Params& params) -> Result<std::unique_ptr<harness::Case>> {
                                const auto config = read_config(params);
                                if (!config.ok()) return config.status();
                                return std::unique_ptr<harness::Case>(std::make_unique<LadderCase>(*config));
                              },
                              {kDropPut, kDelay, kKill, kMismatch},
                              nullptr,
                              {},
                              [](const harness::Params&) {
                                return harness::Spread{.of_all = {"num_experts"}, .of_each = {"max_num_tokens"}};
                              }});
  return true;
}();

}  // namespace
}  // namespace farwarp::lessons::ladder
