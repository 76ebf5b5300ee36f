// A check with nothing but its defaults refuses every planted error of arithmetic: `farwarp check OP`, on one schedule.
// mutants.py says how errors are listed. An error that passes means that the check's inputs do not show it, or that its
// bounds are too wide.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "farwarp/harness/runner.h"
#include "farwarp/substrate/emu/registry.h"
#include "mutants_test.h"

namespace farwarp {

int planted_error = 0;

namespace {

/// The first outcome that is no pass, or the last one.
harness::CaseResult check(const nlohmann::json& planted, TargetKind target) {
  harness::CaseResult result;
  std::vector<harness::CaseRequest> requests = harness::plain_requests(*operator_of(planted));
  if (planted.contains("plain")) requests = {requests.at(planted["plain"].get<std::size_t>())};
  for (harness::CaseRequest& request : requests) {
    request.options.target = target;
    request.options.ranks = planted.value("ranks", 1);
    request.options.seed = 1;
    request.options.calls = 2;
    request.options.adversarial = false;
    result = harness::run_case(request, nullptr, [](int) {});
    if (!result.outcome.pass) break;
  }
  return result;
}

using Planted = std::tuple<std::string, std::string, TargetKind>;  ///< object, error or "none", target
class Errors : public testing::TestWithParam<Planted> {
 protected:
  void TearDown() override {
    emu::prefer_variant("");
    planted_error = 0;
  }
};

TEST_P(Errors, AreRefusedByTheDefaultCheck) {
  const auto& [name, label, target] = GetParam();
  const nlohmann::json planted = mutants().at(name);
  ASSERT_NE(operator_of(planted), nullptr) << "no operator " << planted["op"];
  for (const nlohmann::json& kernel : planted["kernels"])
    ASSERT_NE(emu::find_kernel(name + ":" + kernel.get<std::string>(), target), nullptr)
        << planted["entry"] << " defines no kernel " << kernel;
  emu::prefer_variant(name);
  planted_error = label == "none" ? 0 : planted["errors"][label]["number"].get<int>();
  const harness::CaseResult result = check(planted, target);
  const std::string said = result.outcome.detail + " " + result.outcome.status.to_string();
  if (planted_error == 0) {
    EXPECT_TRUE(result.outcome.pass) << said;
    return;
  }
  ASSERT_TRUE(result.outcome.status.ok()) << said;  // a call that fails says nothing about the judge
  EXPECT_FALSE(result.outcome.pass) << label << " passed: " << planted["errors"][label]["about"];
  printf("%s: %s\n", label.c_str(), said.c_str());
}

std::vector<Planted> all() {
  std::vector<Planted> result;
  const nlohmann::json table = mutants();
  for (const auto& [name, planted] : table.items()) {
    for (const TargetKind target : targets_of(planted)) {
      result.emplace_back(name, "none", target);
      for (const auto& [label, error] : planted["errors"].items()) result.emplace_back(name, label, target);
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Planted, Errors, testing::ValuesIn(all()), [](const auto& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" + std::string(name_of(std::get<2>(info.param)));
});

}  // namespace
}  // namespace farwarp
