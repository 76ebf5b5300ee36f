// Every rung of lesson 04 on both emulated targets: right outputs pass, and injected faults are found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "args.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"

namespace farwarp::harness {
namespace {

namespace ladder = lessons::ladder;

CaseRequest request_of(TargetKind target, const std::string& settings) {
  CaseRequest request;
  request.op = find_operator("lesson-04");
  request.params = {{"num_experts", "8"}, {"experts_per_token", "3"}, {"hidden_dim", "72"}, {"max_num_tokens", "5"}};
  if (!settings.empty() && !add_settings(settings, request.params).ok()) ADD_FAILURE() << settings;
  request.options.target = target;
  request.options.ranks = 3;
  request.options.seed = 7;
  request.options.calls = 2;
  return request;
}

CaseResult run(const CaseRequest& request) {
  return run_case(request, nullptr, [](int) {});
}

class Rungs : public testing::TestWithParam<std::tuple<TargetKind, int>> {
 protected:
  TargetKind target() const { return std::get<0>(GetParam()); }
  CaseRequest request(const std::string& settings = "") const {
    CaseRequest made = request_of(target(), settings);
    made.params["rung"] = std::to_string(std::get<1>(GetParam()));
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(Ladder, Rungs,
                         testing::Combine(testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                                          testing::Range(1, ladder::kRungs + 1)),
                         [](const auto& info) {
                           return fmt::format("{}_rung_{}", name_of(std::get<0>(info.param)), std::get<1>(info.param));
                         });

TEST_P(Rungs, PassUnderAdversarialSchedules) {
  CaseRequest made = request();
  made.options.calls = 4;  // both parities, twice
  made.schedules = 10;
  const CaseResult result = run(made);
  EXPECT_TRUE(result.outcome.pass) << result.outcome.detail;
  EXPECT_GT(result.distinct_schedule_hashes, 1u);
}

TEST_P(Rungs, PassWithOtherShapes) {
  for (const char* settings :
       {"hidden_dim=8", "hidden_dim=1160,segments=5", "experts_per_token=1", "num_experts=40,experts_per_token=32",
        "num_experts=7,experts_per_token=7", "max_num_tokens=1", "max_sms=1,max_num_tokens=40,hidden_dim=16"}) {
    const CaseResult result = run(request(settings));
    EXPECT_TRUE(result.outcome.pass) << settings << ": " << result.outcome.detail;
  }
}

TEST_P(Rungs, PassWithOtherRoutings) {
  for (const char* settings : {"routing=repeated", "routing=one_expert", "routing=one_rank", "routing=skipped",
                               "routing=partial", "tokens=empty_ranks", "tokens=full"}) {
    const CaseResult result = run(request(settings));
    EXPECT_TRUE(result.outcome.pass) << settings << ": " << result.outcome.detail;
  }
}

TEST_P(Rungs, PassWithAnyNumberOfRanksAndAsGraphs) {
  for (const int ranks : {1, 2, 8}) {
    CaseRequest made = request("graph=1");
    made.options.ranks = ranks;
    const CaseResult result = run(made);
    EXPECT_TRUE(result.outcome.pass) << ranks << " ranks: " << result.outcome.detail;
  }
}

TEST_P(Rungs, NoticeADroppedMessage) {
  CaseRequest made = request("tokens=full");
  made.options.fault = *parse_fault("drop_put:2", made.options.ranks);
  EXPECT_FALSE(run(made).outcome.pass);
}

TEST_P(Rungs, NameARankThatIsLate) {
  CaseRequest made = request("tokens=full");
  made.options.fault = *parse_fault("delay:2:60000", made.options.ranks);
  const CaseResult result = run(made);
  EXPECT_EQ(result.outcome.status.code(), StatusCode::kDeadline) << result.outcome.detail;
  EXPECT_NE(result.outcome.detail.find("rank 2"), std::string::npos) << result.outcome.detail;
}

TEST(Ladder, RungsAgreeToTheBitAndAreTimed) {
  CaseRequest made = request_of(TargetKind::kEmuSm90, "rung=all");
  made.options.ranks = 2;
  EXPECT_TRUE(run(made).outcome.pass);
  made.bench = BenchOptions{3, false};
  const CaseResult result = run(made);
  EXPECT_TRUE(result.outcome.pass) << result.outcome.detail;
  ASSERT_EQ(result.bench.measurements.size(), static_cast<std::size_t>(ladder::kRungs));
  for (const Measurement& measurement : result.bench.measurements) {
    EXPECT_GT(measurement.time_us.median, 0) << measurement.name;
    EXPECT_GT(measurement.graph_us, 0) << measurement.name;
    EXPECT_GT(measurement.back_to_back_us, 0) << measurement.name;
  }
}

TEST(Ladder, RanksThatDisagreeAreTold) {
  CaseRequest made = request_of(TargetKind::kEmuSm90, "rung=5");
  made.options.fault = *parse_fault("mismatch:1", made.options.ranks);
  EXPECT_EQ(run(made).outcome.status.code(), StatusCode::kMismatch);
}

TEST(Ladder, WrongParametersAreNamed) {
  const auto error_of = [](const Params& params) {
    const auto made = find_operator("lesson-04")->make(params);
    return made.ok() ? "" : made.status().message();
  };
  EXPECT_EQ(error_of({{"rung", "8"}}), "parameter rung is '8': allowed is all|1|2|3|4|5|6|7");
  EXPECT_EQ(error_of({{"rung", "first"}}), "parameter rung is 'first': allowed is all|1|2|3|4|5|6|7");
  EXPECT_EQ(error_of({{"hidden_dim", "60"}}), "parameter hidden_dim is '60': allowed is a multiple of 8");
  EXPECT_EQ(error_of({{"num_experts", "4"}, {"experts_per_token", "5"}}),
            "parameter experts_per_token is '5': allowed is 1..num_experts");
  EXPECT_NE(error_of({{"max_num_tokens", "65535"}, {"segments", "1024"}}), "");
  EXPECT_EQ(error_of({}), "");
}

}  // namespace
}  // namespace farwarp::harness
