// gemm as the harness sees it: its parameters and its check.
#include <fmt/format.h>

#include "farwarp/harness/params.h"
#include "farwarp/harness/rank_case.h"
#include "farwarp/ops/gemm/case/residue.h"
#include "farwarp/ops/gemm/case/run.h"
#include "farwarp/tile/gemm/shape_wgmma.h"

namespace farwarp::gemm {
namespace {

using harness::Choice;
using harness::ParamInfo;
using harness::Params;

const std::vector<ParamInfo> kParams = {
    {"m", "256", "1 or more"},
    {"n", "384", "a multiple of 8"},
    {"k", "256", "a multiple of 8; with scaling of 16"},
    {"has_bias", "0", "0|1"},
    {"dtype", "bf16", "bf16|fp16"},
    {"scaling", "none", "none|blocks|rows|tensor: others than none: x and w are e4m3 with scales, on Hopper"},
    {"x_scale_by_column", "0", "1, with scaling=blocks: x_scale is [ceil(k / 128), m]"},
    {"x_pitch", "0", "0 (contiguous rows) or elements, a multiple of 8, with scaling of 16; w_pitch likewise"},
    {"w_pitch", "0", "as x_pitch"},
    {"y_pitch", "0", "0 (contiguous rows) or elements, a multiple of 8"},
    {"swap_ab", "auto", "auto (the plan's choice), on Hopper also no|yes: yes: a tile's rows are rows of w"},
    {"tile_rows", "0", "0 (the plan's choice), on Hopper also a height that has a kernel: 64, 128, 256"},
    {"tile_columns", "0", "0 (the plan's choice), on Hopper also a width that has a kernel"},
    {"splits", "0", "0 (the plan's choice), or parts of k: 1, 2, 4 on Hopper, 1 to 16 on CDNA"},
    {"max_sms", "0", "0 (all) or more"},
    {"inputs", "auto", kInputKindNames},
    {"residue", "none",
     "none|centred|shifted (x and w have the mean 1): y is the error of fp32 accumulation; k > 3 * m"},
    {"graph", "0", "1: capture one call and replay it"},
};

Result<CheckConfig> read_config(const Params& params) {
  static constexpr Choice<Residue> kResidues[] = {
      {"none", Residue::kNone}, {"centred", Residue::kCentred}, {"shifted", Residue::kShifted}};
  static constexpr Choice<tile::SwapAb> kSwapAb[] = {
      {"auto", tile::SwapAb::kAuto}, {"no", tile::SwapAb::kNo}, {"yes", tile::SwapAb::kYes}};
  static constexpr Choice<GemmScaling> kScalings[] = {{"none", GemmScaling::kNone},
                                                      {"blocks", GemmScaling::kBlocks},
                                                      {"rows", GemmScaling::kRows},
                                                      {"tensor", GemmScaling::kTensor}};
  constexpr int kMost = 1 << 24;
  harness::ParamReader reader(params, kParams);
  CheckConfig config;
  GemmDesc& desc = config.desc;
  desc.m = reader.small_integer("m", 1, kMost);
  desc.n = reader.small_integer("n", 8, kMost);
  desc.k = reader.small_integer("k", 8, kMost);
  desc.has_bias = reader.flag("has_bias");
  desc.dtype = reader.choice("dtype", harness::kSixteenBitTypes);
  desc.scaling = reader.choice("scaling", kScalings);
  desc.x_scale_by_column = reader.flag("x_scale_by_column");
  desc.x_pitch = reader.integer("x_pitch", 0, kMost);
  desc.w_pitch = reader.integer("w_pitch", 0, kMost);
  desc.y_pitch = reader.integer("y_pitch", 0, kMost);
  desc.swap_ab = reader.choice("swap_ab", kSwapAb);
  desc.tile_rows = reader.small_integer("tile_rows", 0, 256);
  desc.tile_columns = reader.small_integer("tile_columns", 0, 256);
  desc.splits = reader.small_integer("splits", 0, tile::kMaxSplits);
  desc.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  config.inputs = reader.choice("inputs", kInputKinds);
  config.residue = reader.choice("residue", kResidues);
  if (config.residue != Residue::kNone) {
    if (desc.k <= kResiduePieces * desc.m) reader.reject("k", reader.text("k"), "more than 3 * m with a residue");
    if (desc.scaling != GemmScaling::kNone) reader.reject("scaling", reader.text("scaling"), "none with a residue");
    if (desc.has_bias) reader.reject("has_bias", reader.text("has_bias"), "0 with a residue");
    if (config.inputs != InputKind::kAuto) reader.reject("inputs", reader.text("inputs"), "auto with a residue");
    config.inputs = InputKind::kNormal;
  }
  config.graph = reader.flag("graph");
  const bool scaled = desc.scaling != GemmScaling::kNone;
  if (scaled && config.inputs == InputKind::kTiny)
    reader.reject("inputs", reader.text("inputs"), "auto, exact, uniform, normal, mean with scaling");
  for (const char* name : {"n", "y_pitch"}) {
    if (reader.integer(name, 0, kMost) % 8 != 0) reader.reject(name, reader.text(name), "a multiple of 8");
  }
  for (const char* name : {"k", "x_pitch", "w_pitch"}) {
    const int multiple = scaled ? 16 : 8;
    if (reader.integer(name, 0, kMost) % multiple != 0)
      reader.reject(name, reader.text(name), fmt::format("a multiple of {}", multiple));
  }
  if (!reader.status().ok()) return reader.status();
  return config;
}

std::string describe(const CheckConfig& config) {
  const GemmDesc& desc = config.desc;
  return fmt::format(
      "gemm, {} x {} x {}{}, {}{}", desc.m, desc.n, desc.k, desc.has_bias ? " with bias" : "",
      desc.scaling == GemmScaling::kNone ? "" : fmt::format("e4m3 with {} scales -> ", name_of(desc.scaling)),
      name_of(desc.dtype));
}

void for_bench(CheckConfig& config) {
  if (config.inputs == InputKind::kAuto) config.inputs = InputKind::kUniform;
}

const bool kRegistered = [] {
  harness::register_operator(
      {.name = "gemm",
       .summary = "matrix product on one device, each rank its own",
       .params = kParams,
       .make = harness::rank_case_maker<RankRun>(read_config, describe, for_bench),
       .submission =
           Params{{"scaling", "none"}, {"x_pitch", "0"}, {"w_pitch", "0"}, {"y_pitch", "0"}, {"graph", "0"}}});
  return true;
}();

}  // namespace
}  // namespace farwarp::gemm
