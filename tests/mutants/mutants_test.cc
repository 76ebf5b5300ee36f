// Every planted bug must be caught: by a wrong result, by an error of the emulator, or by a deadline, within 500 schedules.
// mutants.py says where they are listed. If a mutant survives, the emulator or the check cannot detect that kind of bug.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "farwarp/harness/runner.h"
#include "farwarp/substrate/emu/registry.h"

namespace farwarp {
namespace {

constexpr int kSchedules = 500;

nlohmann::json mutants() { return nlohmann::json::parse(std::ifstream(FARWARP_MUTANTS_JSON)); }

harness::Params params_of(const nlohmann::json& mutant) {
  harness::Params params;
  for (const auto& [name, value] : mutant["set"].items()) params[name] = value.get<std::string>();
  return params;
}

const harness::OperatorInfo* operator_of(const nlohmann::json& mutant) {
  return harness::find_operator(mutant["op"].get<std::string>());
}

harness::CaseResult run(const nlohmann::json& mutant, TargetKind target, int schedules) {
  harness::CaseRequest request;
  request.op = operator_of(mutant);
  request.params = params_of(mutant);
  request.options.target = target;
  request.options.ranks = 3;
  request.options.seed = 1;
  request.options.calls = 4;
  request.schedules = schedules;
  return harness::run_case(request, nullptr, [](int) {});
}

class Mutants : public testing::TestWithParam<std::tuple<std::string, TargetKind>> {
 protected:
  void TearDown() override { emu::prefer_variant(""); }
};

TEST_P(Mutants, IsCaught) {
  const auto& [name, target] = GetParam();
  const nlohmann::json mutant = mutants().at(name);
  for (const nlohmann::json& kernel : mutant["kernels"]) {
    const std::string variant = name + ":" + kernel.get<std::string>();
    ASSERT_NE(emu::find_kernel(variant, target), nullptr) << mutant["entry"] << " defines no kernel " << kernel;
  }
  ASSERT_NE(operator_of(mutant), nullptr) << "no operator " << mutant["op"];
  emu::prefer_variant(name);
  const harness::CaseResult result = run(mutant, target, kSchedules);
  EXPECT_FALSE(result.outcome.pass) << name << " survived " << kSchedules << " schedules: " << mutant["about"];
  // The mutant must have run: a case that is refused is not a bug that is caught.
  EXPECT_NE(result.outcome.status.code(), StatusCode::kInvalidArgument) << result.outcome.status.to_string();
  EXPECT_NE(result.outcome.status.code(), StatusCode::kUnavailable) << result.outcome.status.to_string();
  printf("%s: caught in schedule %zu: %s\n", name.c_str(), result.schedule_hashes.size(),
         result.outcome.detail.empty() ? result.outcome.status.to_string().c_str() : result.outcome.detail.c_str());
}

TEST_P(Mutants, OriginalPasses) {
  const auto& [name, target] = GetParam();
  const harness::CaseResult result = run(mutants().at(name), target, 20);
  EXPECT_TRUE(result.outcome.pass) << result.outcome.detail << " " << result.outcome.status.to_string();
}

std::vector<std::tuple<std::string, TargetKind>> all() {
  std::vector<std::tuple<std::string, TargetKind>> result;
  const nlohmann::json table = mutants();
  for (const auto& [name, mutant] : table.items()) {
    for (const TargetKind target : {TargetKind::kEmuSm90, TargetKind::kEmuGfx942}) {
      if (mutant.value("only", name_of(target)) == name_of(target)) result.emplace_back(name, target);
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Planted, Mutants, testing::ValuesIn(all()), [](const auto& info) {
  return std::get<0>(info.param) + "_" + std::string(name_of(std::get<1>(info.param)));
});

}  // namespace
}  // namespace farwarp
