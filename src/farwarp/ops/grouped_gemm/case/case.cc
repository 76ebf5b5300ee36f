// grouped_gemm as the harness sees it: its parameters and its check.
#include <fmt/format.h>

#include "farwarp/harness/params.h"
#include "farwarp/harness/rank_case.h"
#include "farwarp/ops/grouped_gemm/args.h"
#include "farwarp/ops/grouped_gemm/case/run.h"

namespace farwarp::grouped_gemm {
namespace {

using gemm::InputKind;
using harness::Choice;
using harness::ParamInfo;
using harness::Params;

const std::vector<ParamInfo> kParams = {
    {"groups", "5", "1 to 480"},
    {"max_rows", "300", "of x; with rows=counts of each group"},
    {"n", "192", "columns of y: a multiple of 8, with an activation of 64"},
    {"k", "256", "a multiple of 8; with scaling of 16"},
    {"dtype", "bf16", "bf16|fp16"},
    {"scaling", "none", "none|blocks: blocks: x and w are e4m3 with scales"},
    {"rows", "offsets", "offsets|counts: how the groups' rows are given"},
    {"activation", "none", "none|swiglu|clamped_swiglu"},
    {"has_bias", "0", "0|1"},
    {"spread", "random", "random|even|one: how many rows the groups have"},
    {"expected_rows", "0", "0, or rows of a group that the plan reckons with"},
    {"tile_rows", "0", "0 (the plan's choice), 64, 128"},
    {"tile_columns", "0", "0 (the plan's choice), 128, 256"},
    {"max_sms", "0", "0 (all) or more"},
    {"inputs", "auto", gemm::kInputKindNames},
    {"graph", "0", "1: capture one call and replay it"},
};

Result<CheckConfig> read_config(const Params& params) {
  static constexpr Choice<GemmScaling> kScalings[] = {{"none", GemmScaling::kNone}, {"blocks", GemmScaling::kBlocks}};
  static constexpr Choice<GroupRows> kRows[] = {{"offsets", GroupRows::kOffsets}, {"counts", GroupRows::kCounts}};
  static constexpr Choice<Activation> kActivations[] = {
      {"none", Activation::kNone}, {"swiglu", Activation::kSwiGlu}, {"clamped_swiglu", Activation::kClampedSwiGlu}};
  static constexpr Choice<Spread> kSpreads[] = {
      {"random", Spread::kRandom}, {"even", Spread::kEven}, {"one", Spread::kOne}};
  constexpr int kMost = 1 << 24;
  harness::ParamReader reader(params, kParams);
  CheckConfig config;
  GroupedGemmDesc& desc = config.desc;
  desc.groups = reader.small_integer("groups", 1, kMostGroups);
  desc.max_rows = reader.small_integer("max_rows", 1, kMost);
  desc.n = reader.small_integer("n", 8, kMost);
  desc.k = reader.small_integer("k", 8, kMost);
  desc.dtype = reader.choice("dtype", harness::kSixteenBitTypes);
  desc.scaling = reader.choice("scaling", kScalings);
  desc.group_rows = reader.choice("rows", kRows);
  desc.activation = reader.choice("activation", kActivations);
  desc.has_bias = reader.flag("has_bias");
  config.spread = reader.choice("spread", kSpreads);
  desc.expected_rows = reader.small_integer("expected_rows", 0, kMost);
  desc.tile_rows = reader.small_integer("tile_rows", 0, 256);
  desc.tile_columns = reader.small_integer("tile_columns", 0, 256);
  desc.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  config.inputs = reader.choice("inputs", gemm::kInputKinds);
  config.graph = reader.flag("graph");
  if (desc.scaling != GemmScaling::kNone && config.inputs == InputKind::kTiny)
    reader.reject("inputs", reader.text("inputs"), "auto, exact, uniform, normal, mean with scaling");
  if (desc.activation != Activation::kNone && config.inputs != InputKind::kAuto &&
      config.inputs != InputKind::kNormal && config.inputs != InputKind::kMean)
    reader.reject("inputs", reader.text("inputs"), "auto, normal, mean with an activation");
  if (!reader.status().ok()) return reader.status();
  return config;
}

std::string describe(const CheckConfig& config) {
  const GroupedGemmDesc& desc = config.desc;
  return fmt::format("grouped_gemm, {} groups, {} rows{} x {} x {}, {}{}", desc.groups, desc.max_rows,
                     desc.group_rows == GroupRows::kCounts ? " each" : "", desc.n, desc.k,
                     desc.scaling == GemmScaling::kNone ? "" : "e4m3 -> ", name_of(desc.dtype));
}

void for_bench(CheckConfig& config) {
  if (config.inputs == InputKind::kAuto) config.inputs = InputKind::kNormal;
}

const bool kRegistered = [] {
  harness::register_operator({.name = "grouped-gemm",
                              .summary = "products of groups of rows with matrices of their own: a MoE layer's experts",
                              .params = kParams,
                              .make = harness::rank_case_maker<RankRun>(read_config, describe, for_bench)});
  return true;
}();

}  // namespace
}  // namespace farwarp::grouped_gemm
