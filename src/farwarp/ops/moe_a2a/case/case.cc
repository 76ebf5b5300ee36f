// moe-a2a in the harness: its parameters, its check and its bench.
#include "farwarp/harness/case.h"

#include <fmt/format.h>

#include <limits>

#include "farwarp/harness/params.h"
#include "farwarp/ops/moe_a2a/case/bench.h"
#include "farwarp/ops/moe_a2a/case/run.h"

namespace farwarp::moe {
namespace {

using harness::CheckOutcome;
using harness::Choice;
using harness::ParamInfo;
using harness::Params;
using harness::RunOptions;

const std::vector<ParamInfo> kParams = {
    {"num_experts", "64", "ranks..4096"},
    {"experts_per_token", "6", "1..32, at most num_experts"},
    {"hidden_dim", "2048", "a multiple of 8"},
    {"max_num_tokens", "8", "1..65535, of each rank"},
    {"dtype", "fp16", "fp16|bf16"},
    {"dispatch_dtype", "same", "same|fp8: e4m3 with a scale per 128, needs dtype=bf16"},
    {"index", "int32", "int32|int64"},
    {"routing", "uniform", "uniform|zipf|repeated|one_expert|one_rank|skipped|partial"},
    {"tokens", "auto", "auto|uniform|full|empty_ranks; auto: uniform in a check, full in a bench"},
    {"inputs", "auto", "auto (exact, normal, exact, ...; a bench: normal)|exact|normal|uniform|tiny"},
    {"mode", "auto", "auto|words|bulk"},
    {"form", "fused", "fused|split"},
    {"expert", "auto", "auto|table|rank_scale; auto: table in a check, rank_scale in a bench"},
    {"count", "host", "host|device: where the token count lies"},
    {"layout", "expert_major", "expert_major|masked|rows; of form=split, as are the next four"},
    {"scales", "rows", "rows|columns: how the scales of fp8 lie; columns: layout=masked"},
    {"weights", "dispatch", "dispatch|combine: to which of them the weights are given"},
    {"row_alignment", "1", "a power of two up to 1024"},
    {"recv_rows", "auto", "auto: what these tokens need; 0: the worst case; or a number"},
    {"max_sms", "0", "0 (all) or more"},
    {"segments", "0", "0 (the plan's choice) to 1024: segments of a row, which different warps take"},
    {"send_only_blocks", "0",
     "-1 (every block sends), 0 (the plan's choice), or blocks that send while others receive; form=split"},
    {"graph", "0", "1: capture one call and replay it; needs count=device or tokens=full"},
    {"burst", "1", "1..64: calls enqueued without waiting for any of them; form=fused"},
    {"halves", "0", "1: dispatch and combine in two launches each; form=split, as is the next"},
    {"in_flight", "1", "1..2: calls dispatched before the first is combined, each by an operator of its own"},
    {"delay_us", "0", "0..1000000: longest random delay of each rank before each call"},
};

std::int64_t read_recv_rows(harness::ParamReader& reader) {
  if (reader.text("recv_rows") == "auto") return kAutoRows;
  return reader.integer("recv_rows", 0, std::numeric_limits<std::int32_t>::max());
}

Result<CheckConfig> read_config(const Params& params) {
  static constexpr Choice<DType> kDtypes[] = {{"fp16", DType::kF16}, {"bf16", DType::kBf16}};
  static constexpr Choice<DType> kIndices[] = {{"int32", DType::kI32}, {"int64", DType::kI64}};
  static constexpr Choice<bool> kDispatchDtypes[] = {{"same", false}, {"fp8", true}};
  static constexpr Choice<RoutingKind> kRoutings[] = {
      {"uniform", RoutingKind::kUniform},   {"zipf", RoutingKind::kZipf},
      {"repeated", RoutingKind::kRepeated}, {"one_expert", RoutingKind::kOneExpert},
      {"one_rank", RoutingKind::kOneRank},  {"skipped", RoutingKind::kSkipped},
      {"partial", RoutingKind::kPartial}};
  static constexpr Choice<TokenCounts> kTokens[] = {{"auto", TokenCounts::kAuto},
                                                    {"uniform", TokenCounts::kUniform},
                                                    {"full", TokenCounts::kFull},
                                                    {"empty_ranks", TokenCounts::kEmptyRanks}};
  using enum harness::InputKind;
  static constexpr Choice<harness::InputKind> kKinds[] = {
      {"auto", kAuto}, {"exact", kExact}, {"normal", kNormal}, {"uniform", kUniform}, {"tiny", kTiny}};
  static constexpr Choice<MoeMode> kModes[] = {
      {"auto", MoeMode::kAuto}, {"words", MoeMode::kWords}, {"bulk", MoeMode::kBulk}};
  static constexpr Choice<bool> kForms[] = {{"fused", true}, {"split", false}};
  static constexpr Choice<MoeExpert> kExperts[] = {
      {"auto", MoeExpert::kTable}, {"table", MoeExpert::kTable}, {"rank_scale", MoeExpert::kRankScale}};
  static constexpr Choice<bool> kCounts[] = {{"host", false}, {"device", true}};
  static constexpr Choice<MoeLayout> kLayouts[] = {
      {"expert_major", MoeLayout::kExpertMajor}, {"masked", MoeLayout::kMasked}, {"rows", MoeLayout::kRows}};
  static constexpr Choice<MoeScales> kScales[] = {{"rows", MoeScales::kRowMajor}, {"columns", MoeScales::kColumns}};
  static constexpr Choice<bool> kWeights[] = {{"dispatch", false}, {"combine", true}};
  harness::ParamReader reader(params, kParams);
  CheckConfig config;
  MoeAllToAllDesc& desc = config.desc;
  desc.num_experts = reader.small_integer("num_experts", 1, 4096);
  desc.experts_per_token = reader.small_integer("experts_per_token", 1, 32);
  desc.hidden = reader.small_integer("hidden_dim", 8, 1 << 20);
  desc.max_tokens = reader.small_integer("max_num_tokens", 1, 65535);
  desc.dtype = reader.choice("dtype", kDtypes);
  desc.fp8_dispatch = reader.choice("dispatch_dtype", kDispatchDtypes);
  desc.index_type = reader.choice("index", kIndices);
  desc.layout = reader.choice("layout", kLayouts);
  desc.scales = reader.choice("scales", kScales);
  desc.weights_at_combine = reader.choice("weights", kWeights);
  desc.row_alignment = reader.small_integer("row_alignment", 1, 1024);
  desc.recv_rows = read_recv_rows(reader);
  desc.mode = reader.choice("mode", kModes);
  desc.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  desc.segments = reader.small_integer("segments", 0, 1024);
  desc.send_only_blocks = reader.small_integer("send_only_blocks", -1, 1 << 16);
  config.inputs.routing = reader.choice("routing", kRoutings);
  config.inputs.tokens = reader.choice("tokens", kTokens);
  config.inputs.kind = reader.choice("inputs", kKinds);
  config.inputs.expert = reader.choice("expert", kExperts);
  config.auto_expert = reader.text("expert") == "auto";
  config.fused = reader.choice("form", kForms);
  config.count_on_device = reader.choice("count", kCounts);
  config.graph = reader.flag("graph");
  config.burst = reader.small_integer("burst", 1, 64);
  config.halves = reader.flag("halves");
  config.in_flight = reader.small_integer("in_flight", 1, 2);
  config.longest_delay_ns = static_cast<std::uint64_t>(reader.integer("delay_us", 0, 1'000'000)) * 1000;
  if (config.burst > 1 && !config.fused) reader.reject("burst", reader.text("burst"), "1 with form=split");
  const bool columns = desc.scales == MoeScales::kColumns;
  if (columns && (!desc.fp8_dispatch || desc.layout != MoeLayout::kMasked || config.fused))
    reader.reject("scales", reader.text("scales"),
                  "rows, or columns with dispatch_dtype=fp8, layout=masked, form=split");
  const bool by_rows = desc.layout == MoeLayout::kRows;
  if (by_rows && (desc.fp8_dispatch || desc.weights_at_combine || desc.row_alignment != 1 || config.fused)) {
    reader.reject(
        "layout", reader.text("layout"),
        "expert_major, masked, or rows with dispatch_dtype=same, weights=dispatch, row_alignment=1, form=split");
  }
  if (config.fused && desc.weights_at_combine)
    reader.reject("weights", reader.text("weights"), "dispatch, or combine with form=split");
  if (config.fused && config.halves) reader.reject("halves", reader.text("halves"), "0, or 1 with form=split");
  if (config.fused && config.in_flight > 1)
    reader.reject("in_flight", reader.text("in_flight"), "1, or 2 with form=split");
  if (desc.fp8_dispatch && desc.dtype != DType::kBf16)
    reader.reject("dispatch_dtype", reader.text("dispatch_dtype"), "same, or fp8 with dtype=bf16");
  if (desc.hidden % 8 != 0) reader.reject("hidden_dim", reader.text("hidden_dim"), "a multiple of 8");
  if (desc.experts_per_token > desc.num_experts)
    reader.reject("experts_per_token", reader.text("experts_per_token"), "1..num_experts");
  if ((desc.row_alignment & (desc.row_alignment - 1)) != 0)
    reader.reject("row_alignment", reader.text("row_alignment"), "a power of two");
  if (config.graph && !config.count_on_device && config.inputs.tokens != TokenCounts::kFull) {
    reader.reject("graph", reader.text("graph"),
                  "0, or 1 with count=device or tokens=full: a captured token count cannot change");
  }
  if (!reader.status().ok()) return reader.status();
  return config;
}

class MoeCase : public harness::Case {
 public:
  explicit MoeCase(const CheckConfig& config) : config_(config) {}
  std::string describe() const override {
    const MoeAllToAllDesc& desc = config_.desc;
    return fmt::format("moe-a2a, {} experts, top-{}, hidden {}, at most {} tokens, {}", desc.num_experts,
                       desc.experts_per_token, desc.hidden, desc.max_tokens, name_of(desc.dtype));
  }
  CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options) override {
    RankRun run(config_, std::move(bootstrap), options);
    Status status = run.open();
    if (status.ok()) status = run.all_calls();
    return run.outcome(run.close(status));
  }
  harness::BenchOutcome bench(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options,
                              const harness::BenchOptions& bench_options) override {
    return BenchRun(config_, std::move(bootstrap), options, bench_options).run();
  }

 private:
  CheckConfig config_;
};

/// For the emulator: at most 256 tokens.
Params scaled_down(const Params& given, int /*ranks*/) {
  constexpr int kMost = 256;
  const auto config = read_config(given);
  if (!config.ok() || config->desc.max_tokens <= kMost) return given;
  Params params = given;
  params["max_num_tokens"] = std::to_string(kMost);
  return params;
}

const bool kRegistered = [] {
  using enum harness::Fault::Kind;
  harness::register_operator(
      {"moe-a2a",
       "MoE all-to-all: dispatch, experts, combine",
       kParams,
       [](const Params& params) -> Result<std::unique_ptr<harness::Case>> {
         const auto config = read_config(params);
         if (!config.ok()) return config.status();
         return std::unique_ptr<harness::Case>(new MoeCase(*config));
       },
       {kDropPut, kDelay, kKill, kMismatch},
       scaled_down,
       {},
       [](const Params&) { return harness::Spread{.of_all = {"num_experts"}, .of_each = {"max_num_tokens"}}; },
       true,
       // expert: with rank_scale no row would have to leave its rank.
       Params{{"form", "fused"},
              {"expert", "table"},
              {"dispatch_dtype", "same"},
              {"count", "host"},
              {"graph", "0"},
              {"burst", "1"},
              {"delay_us", "0"}}});
  return true;
}();

}  // namespace
}  // namespace farwarp::moe
