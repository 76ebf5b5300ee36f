// The all-reduce as the harness sees it: its parameters and its check.
#include <fmt/format.h>

#include "farwarp/harness/params.h"
#include "farwarp/harness/rank_case.h"
#include "farwarp/ops/all_reduce/case/run.h"

namespace farwarp::all_reduce {
namespace {

using harness::Choice;
using harness::ParamInfo;
using harness::Params;

const std::vector<ParamInfo> kParams = {
    {"elements", "1000", "1 to 268435456, of a call"},
    {"max_elements", "0", "0 (as elements) or elements to 268435456"},
    {"dtype", "bf16", "bf16|fp16|fp32"},
    {"mode", "auto", "auto|one_shot|two_shot"},
    {"max_sms", "0", "0 (all) or more"},
    {"in_place", "0", "0|1"},
    {"sizes", "same", "same|varied: each call has another number of elements, up to `elements`"},
    {"inputs", "auto", "auto|uniform|cancelling|huge|special"},
    {"graph", "0", "1: capture one call of each size and replay it"},
    {"burst", "1", "calls without waiting; in place each reduces the result of the one before"},
    {"delay", "0", "us: the longest delay of a rank before a call"},
};

Result<CheckConfig> read_config(const Params& params) {
  static constexpr Choice<DType> kDtypes[] = {{"bf16", DType::kBf16}, {"fp16", DType::kF16}, {"fp32", DType::kF32}};
  static constexpr Choice<AllReduceMode> kModes[] = {
      {"auto", AllReduceMode::kAuto}, {"one_shot", AllReduceMode::kOneShot}, {"two_shot", AllReduceMode::kTwoShot}};
  static constexpr Choice<bool> kSizes[] = {{"same", false}, {"varied", true}};
  static constexpr Choice<InputKind> kInputs[] = {{"auto", InputKind::kAuto},
                                                  {"uniform", InputKind::kUniform},
                                                  {"cancelling", InputKind::kCancelling},
                                                  {"huge", InputKind::kHuge},
                                                  {"special", InputKind::kSpecial}};
  constexpr int kMost = 1 << 28;
  harness::ParamReader reader(params, kParams);
  CheckConfig config;
  config.elements = reader.integer("elements", 1, kMost);
  config.desc.max_elements = reader.integer("max_elements", 0, kMost);
  if (config.desc.max_elements == 0) config.desc.max_elements = config.elements;
  if (config.desc.max_elements < config.elements)
    reader.reject("max_elements", reader.text("max_elements"), "0 (as elements) or elements to 268435456");
  config.desc.dtype = reader.choice("dtype", kDtypes);
  config.desc.mode = reader.choice("mode", kModes);
  config.desc.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  config.in_place = reader.flag("in_place");
  config.varied = reader.choice("sizes", kSizes);
  config.inputs = reader.choice("inputs", kInputs);
  config.graph = reader.flag("graph");
  config.burst = reader.small_integer("burst", 1, 1000);
  config.delay_us = reader.small_integer("delay", 0, 1000);
  if (!reader.status().ok()) return reader.status();
  return config;
}

std::string describe(const CheckConfig& config) {
  const AllReduceDesc& desc = config.desc;
  return fmt::format("all-reduce of {} {}, {}{}", config.elements, name_of(desc.dtype), name_of(desc.mode),
                     config.in_place ? ", in place" : "");
}

void for_bench(CheckConfig& config) {
  if (config.inputs == InputKind::kAuto) config.inputs = InputKind::kCancelling;  // NCCL's sums are compared, too
}

/// For the emulator: at most 20000 elements, in the form that the full number takes.
Params scaled_down(const Params& given, int ranks) {
  constexpr std::int64_t kMost = 20000;
  const auto config = read_config(given);
  if (!config.ok() || config->elements <= kMost) return given;
  const auto plan = plan_all_reduce(config->desc, MachineShape{}, ranks);
  if (!plan.ok()) return given;
  Params params = given;
  params["elements"] = std::to_string(kMost);
  params["max_elements"] = "0";
  params["mode"] =
      name_of(launch_of(*plan, config->elements).two_shot ? AllReduceMode::kTwoShot : AllReduceMode::kOneShot);
  return params;
}

[[maybe_unused]] const bool registered = [] {
  using enum harness::Fault::Kind;
  harness::register_operator(
      {"all-reduce",
       "sums of tensors of all ranks, one-shot or two-shot",
       kParams,
       harness::rank_case_maker<RankRun>(read_config, describe, for_bench),
       {kDropPut, kDelay, kKill, kMismatch},
       scaled_down,
       {{},
        {{"elements", "9001"}, {"mode", "two_shot"}, {"dtype", "fp16"}, {"in_place", "1"}},
        {{"elements", "3001"}, {"mode", "two_shot"}, {"dtype", "fp32"}}},
       nullptr,
       false,
       Params{
           {"inputs", "auto"}, {"sizes", "same"}, {"in_place", "0"}, {"graph", "0"}, {"burst", "1"}, {"delay", "0"}}});
  return true;
}();

}  // namespace
}  // namespace farwarp::all_reduce
