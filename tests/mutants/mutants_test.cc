// Every planted bug must be caught: by a wrong result, by an error of the emulator, or by a deadline, within 500
// schedules. mutants.py says where they are listed. If a mutant survives, the emulator or the check cannot detect that
// kind of bug.
#include "mutants_test.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "farwarp/harness/runner.h"
#include "farwarp/substrate/emu/registry.h"

namespace farwarp {
namespace {

constexpr int kSchedules = 500, kSchedulesOfOriginals = 5;

harness::CaseResult run(const nlohmann::json& mutant, TargetKind target, int schedules) {
  harness::CaseRequest request;
  request.op = operator_of(mutant);
  request.params = params_of(mutant);
  request.options.target = target;
  request.options.ranks = mutant.value("ranks", 3);
  request.options.seed = 1;
  request.options.calls = mutant.value("calls", 4);
  request.schedules = schedules;
  constexpr const char* kXcds = "FARWARP_EMU_XCDS";
  if (mutant.contains("xcds")) setenv(kXcds, mutant["xcds"].dump().c_str(), 1);
  harness::CaseResult result = harness::run_case(request, nullptr, [](int) {});
  unsetenv(kXcds);
  return result;
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
  // A case that is refused has not run: no bug was caught.
  const StatusCode code = result.outcome.status.code();
  if (code == StatusCode::kInvalidArgument || code == StatusCode::kUnavailable)
    FAIL() << name << ": the case was refused: " << result.outcome.status.to_string();
  ASSERT_FALSE(result.outcome.pass) << name << " survived " << kSchedules << " schedules: " << mutant["about"];
  printf("%s: caught in schedule %zu: %s\n", name.c_str(), result.schedule_hashes.size(),
         result.outcome.detail.empty() ? result.outcome.status.to_string().c_str() : result.outcome.detail.c_str());
}

std::vector<std::tuple<std::string, TargetKind>> all() {
  std::vector<std::tuple<std::string, TargetKind>> result;
  const nlohmann::json table = mutants();
  for (const auto& [name, mutant] : table.items()) {
    for (const TargetKind target : targets_of(mutant)) result.emplace_back(name, target);
  }
  return result;
}

std::string label(const testing::TestParamInfo<std::tuple<std::string, TargetKind>>& info) {
  return std::get<0>(info.param) + "_" + std::string(name_of(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Planted, Mutants, testing::ValuesIn(all()), label);

// What catches a mutant must pass without the bug. Mutants that run alike share one test, which has the name of the
// first of them.
class Originals : public testing::TestWithParam<std::tuple<std::string, TargetKind>> {};

TEST_P(Originals, Pass) {
  const auto& [name, target] = GetParam();
  const nlohmann::json mutant = mutants().at(name);
  ASSERT_NE(operator_of(mutant), nullptr) << "no operator " << mutant["op"];
  const harness::CaseResult result = run(mutant, target, kSchedulesOfOriginals);
  EXPECT_TRUE(result.outcome.pass) << result.outcome.detail << " " << result.outcome.status.to_string();
}

std::vector<std::tuple<std::string, TargetKind>> distinct() {
  std::vector<std::tuple<std::string, TargetKind>> result;
  std::set<std::string> seen;
  const nlohmann::json table = mutants();
  for (const auto& [name, target] : all()) {
    const nlohmann::json& mutant = table[name];
    nlohmann::json as_run = {mutant["op"], mutant["set"], name_of(target)};
    for (const char* optional : {"ranks", "calls", "xcds"}) as_run.push_back(mutant.value(optional, 0));
    if (seen.insert(as_run.dump()).second) result.emplace_back(name, target);
  }
  return result;
}
INSTANTIATE_TEST_SUITE_P(Planted, Originals, testing::ValuesIn(distinct()), label);

}  // namespace
}  // namespace farwarp
