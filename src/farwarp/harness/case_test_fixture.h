// What tests of the operators' cases share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"

namespace farwarp::harness {

inline constexpr TargetKind kEmulatedTargets[] = {TargetKind::kEmuSm90, TargetKind::kEmuGfx942};
inline std::string name_of_target(const testing::TestParamInfo<TargetKind>& info) {
  return std::string(name_of(info.param));
}

struct TestedCase {
  const char* op;
  std::string settings;
  TargetKind target = TargetKind::kEmuSm90;
  int ranks = 1;
  int schedules = 1;
  int calls = 2;
  std::string fault = {};
  std::uint64_t seed = 11;
};

inline CaseRequest request_of(const TestedCase& tested) {
  CaseRequest request;
  request.op = find_operator(tested.op);
  if (!add_settings(tested.settings, request.params).ok()) ADD_FAILURE() << tested.settings;
  request.options.target = tested.target;
  request.options.ranks = tested.ranks;
  request.options.seed = tested.seed;
  request.options.calls = tested.calls;
  if (!tested.fault.empty()) request.options.fault = *parse_fault(tested.fault, tested.ranks);
  request.schedules = tested.schedules;
  return request;
}

inline CaseResult run_case(const CaseRequest& request) {
  return run_case(request, nullptr, [](int) {});
}
inline CaseResult run_case(const TestedCase& tested) { return run_case(request_of(tested)); }

inline void expect_pass(const TestedCase& tested) {
  const CaseResult result = run_case(tested);
  EXPECT_TRUE(result.outcome.pass) << tested.settings << ", " << tested.ranks << " ranks: " << result.outcome.detail
                                   << " " << result.outcome.status.to_string();
}

/// One operator on each emulated target.
class CaseTest : public testing::TestWithParam<TargetKind> {
 protected:
  CaseTest(const char* op, std::uint64_t seed) : op_(op), seed_(seed) {}

  CaseResult run(const std::string& settings, int ranks, int schedules = 1, int calls = 2,
                 const std::string& fault = "") const {
    return run_case(tested(settings, ranks, schedules, calls, fault));
  }
  void expect_pass(const std::string& settings, int ranks, int schedules = 1, int calls = 2) const {
    harness::expect_pass(tested(settings, ranks, schedules, calls));
  }
  TestedCase tested(const std::string& settings, int ranks, int schedules = 1, int calls = 2,
                    const std::string& fault = "") const {
    return {op_, settings, GetParam(), ranks, schedules, calls, fault, seed_};
  }

 private:
  const char* op_;
  std::uint64_t seed_;
};

}  // namespace farwarp::harness
