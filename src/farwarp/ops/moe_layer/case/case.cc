// moe_layer as the harness sees it: its parameters and its check.
#include <fmt/format.h>

#include "farwarp/harness/params.h"
#include "farwarp/harness/rank_case.h"
#include "farwarp/ops/moe_layer/args.h"
#include "farwarp/ops/moe_layer/case/run.h"

namespace farwarp::moe_layer {
namespace {

using harness::Choice;
using harness::ParamInfo;
using harness::Params;
using moe::RoutingKind;
using moe::TokenCounts;

const std::vector<ParamInfo> kParams = {
    {"num_experts", "16", "ranks to ranks * 384"},
    {"experts_per_token", "4", "1 to 32, at most num_experts"},
    {"hidden_dim", "256", "a multiple of 8"},
    {"intermediate", "128", "a multiple of 8"},
    {"max_num_tokens", "32", "1 to 65535, of each rank"},
    {"dtype", "bf16", "bf16|fp16"},
    {"index", "int32", "int32|int64"},
    {"activation", "swiglu", "swiglu|clamped_swiglu"},
    {"has_bias", "0", "0|1"},
    {"routing", "uniform", "uniform|zipf|repeated|one_expert|one_rank|skipped|partial"},
    {"tokens", "auto", "auto|uniform|full|empty_ranks; auto: uniform in a check, full in a bench"},
    {"inputs", "auto", "auto (exact, normal, exact, ...; a bench: normal)|exact|normal"},
    {"count", "host", "host|device: where the token count lies"},
    {"max_rows", "0", "0 (the worst case), or the most entries of a rank"},
    {"tile_rows", "0", "0 (the plan's choice), 64, 128"},
    {"tile_columns", "0", "0 (the plan's choice), 128, 256"},
    {"max_sms", "0", "0 (all) or more"},
    {"graph", "0", "1: capture one call and replay it; needs count=device or tokens=full"},
    {"burst", "1", "1 to 64: calls enqueued without waiting for any of them"},
    {"delay_us", "0", "0 to 1000000: longest random delay of each rank before each call"},
    {"unfused", "0", "1: compare to the bit with dispatch, two grouped products and combine; a bench times those, too"},
};

Result<CheckConfig> read_config(const Params& params) {
  static constexpr Choice<DType> kIndices[] = {{"int32", DType::kI32}, {"int64", DType::kI64}};
  static constexpr Choice<Activation> kActivations[] = {{"swiglu", Activation::kSwiGlu},
                                                        {"clamped_swiglu", Activation::kClampedSwiGlu}};
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
  static constexpr Choice<harness::InputKind> kKinds[] = {{"auto", kAuto}, {"exact", kExact}, {"normal", kNormal}};
  static constexpr Choice<bool> kCounts[] = {{"host", false}, {"device", true}};
  harness::ParamReader reader(params, kParams);
  CheckConfig config;
  MoeLayerDesc& desc = config.desc;
  desc.num_experts = reader.small_integer("num_experts", 1, kMaxRanks * kMaxLocalExperts);
  desc.experts_per_token = reader.small_integer("experts_per_token", 1, kMaxTopK);
  desc.hidden = reader.small_integer("hidden_dim", 8, 1 << 20);
  desc.intermediate = reader.small_integer("intermediate", 8, 1 << 20);
  desc.max_tokens = reader.small_integer("max_num_tokens", 1, 65535);
  desc.dtype = reader.choice("dtype", harness::kSixteenBitTypes);
  desc.index_type = reader.choice("index", kIndices);
  desc.activation = reader.choice("activation", kActivations);
  desc.has_bias = reader.flag("has_bias");
  desc.max_rows = reader.small_integer("max_rows", 0, 1 << 30);
  desc.tile_rows = reader.small_integer("tile_rows", 0, 256);
  desc.tile_columns = reader.small_integer("tile_columns", 0, 256);
  desc.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  config.inputs.routing = reader.choice("routing", kRoutings);
  config.inputs.tokens = reader.choice("tokens", kTokens);
  config.inputs.kind = reader.choice("inputs", kKinds);
  config.count_on_device = reader.choice("count", kCounts);
  config.graph = reader.flag("graph");
  config.burst = reader.small_integer("burst", 1, 64);
  config.longest_delay_us = reader.small_integer("delay_us", 0, 1'000'000);
  config.unfused = reader.flag("unfused");
  if (desc.experts_per_token > desc.num_experts)
    reader.reject("experts_per_token", reader.text("experts_per_token"), "1 to num_experts");
  if (desc.activation == Activation::kClampedSwiGlu && config.inputs.kind == kExact)
    reader.reject("inputs", reader.text("inputs"), "auto, normal with activation=clamped_swiglu");
  if (config.unfused && desc.intermediate % 64 != 0)
    reader.reject("unfused", reader.text("unfused"), "0, or 1 with an intermediate that 64 divides");
  if (config.graph && !config.count_on_device && config.inputs.tokens != TokenCounts::kFull)
    reader.reject("graph", reader.text("graph"),
                  "0, or 1 with count=device or tokens=full: a captured token count cannot change");
  if (!reader.status().ok()) return reader.status();
  return config;
}

std::string describe(const CheckConfig& config) {
  const MoeLayerDesc& desc = config.desc;
  return fmt::format("moe_layer, {} experts, top-{}, hidden {}, intermediate {}, at most {} tokens, {}",
                     desc.num_experts, desc.experts_per_token, desc.hidden, desc.intermediate, desc.max_tokens,
                     name_of(desc.dtype));
}

void for_bench(CheckConfig& config) {
  if (config.inputs.kind == harness::InputKind::kAuto) config.inputs.kind = harness::InputKind::kNormal;
  if (config.inputs.tokens == TokenCounts::kAuto) config.inputs.tokens = TokenCounts::kFull;
}

/// For the emulator: at most 32 tokens, 4 experts of a rank, and sizes of 128 to 248 with the remainder by 128.
Params scaled_down(const Params& given, int ranks) {
  const auto config = read_config(given);
  if (!config.ok()) return given;
  const MoeLayerDesc& desc = config->desc;
  constexpr int kMostTokens = 32, kMostExperts = 4, kMostSize = 256;
  const auto smaller = [](int value) { return value <= kMostSize ? value : kMostSize / 2 + value / 8 % 16 * 8; };
  Params params = given;
  params["max_num_tokens"] = std::to_string(std::min(desc.max_tokens, kMostTokens));
  params["num_experts"] = std::to_string(std::min(desc.num_experts, ranks * kMostExperts));
  params["experts_per_token"] = std::to_string(std::min(desc.experts_per_token, ranks * kMostExperts));
  params["hidden_dim"] = std::to_string(smaller(desc.hidden));
  params["intermediate"] = std::to_string(smaller(desc.intermediate));
  params["max_rows"] = "0";
  return params;
}

const bool kRegistered = [] {
  using enum harness::Fault::Kind;
  harness::register_operator(
      {.name = "moe-layer",
       .summary = "a MoE layer's routed experts over ranks, in one launch: from tokens to weighted sums",
       .params = kParams,
       .make = harness::rank_case_maker<RankRun>(read_config, describe, for_bench),
       .faults = {kDropPut, kDelay, kKill},
       .scaled_down = scaled_down,
       .spread = [](const Params&) {
         return harness::Spread{.of_all = {"num_experts"}, .of_each = {"max_num_tokens"}};
       }});
  return true;
}();

}  // namespace
}  // namespace farwarp::moe_layer
