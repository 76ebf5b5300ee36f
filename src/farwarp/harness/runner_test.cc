#include "farwarp/harness/runner.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "farwarp/harness/report.h"

namespace farwarp::harness {
namespace {

const auto kNoProgress = [](int) {};

// A Case whose outcome a test chooses for each rank.
using Behaviour = std::function<CheckOutcome(int rank, const RunOptions&)>;
class ChosenCase : public Case {
 public:
  explicit ChosenCase(Behaviour behaviour) : behaviour_(std::move(behaviour)) {}
  std::string describe() const override { return "chosen"; }
  CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options) override {
    return behaviour_(bootstrap->rank(), options);
  }

 private:
  Behaviour behaviour_;
};

CaseResult run(const Behaviour& behaviour, int schedules = 1, const Fault& fault = {}) {
  static std::vector<std::unique_ptr<OperatorInfo>> ops;  // results keep pointers to their operators
  ops.push_back(std::make_unique<OperatorInfo>());
  ops.back()->name = "chosen";
  ops.back()->params = {{"size", "4", "any"}};
  ops.back()->make = [behaviour](const Params&) -> Result<std::unique_ptr<Case>> {
    return std::unique_ptr<Case>(new ChosenCase(behaviour));
  };
  ops.back()->faults = {Fault::Kind::kDropPut, Fault::Kind::kDelay, Fault::Kind::kKill};
  CaseRequest request;
  request.op = ops.back().get();
  request.options.fault = fault;
  request.options.ranks = 4;
  request.options.seed = 11;
  request.schedules = schedules;
  return run_case(request, nullptr, kNoProgress);
}

CheckOutcome passed() { return {true, "", {}, 0.25, 0.5, 0.5}; }

TEST(Runner, PassesOnlyIfEveryRankPasses) {
  EXPECT_EQ(exit_code(run([](int, const RunOptions&) { return passed(); })), 0);
  const CaseResult failed = run([](int rank, const RunOptions&) {
    return rank == 2 ? CheckOutcome{false, "wrong", {}, 0.75, std::numeric_limits<double>::infinity(), 2} : passed();
  });
  EXPECT_FALSE(failed.outcome.pass);
  EXPECT_EQ(failed.outcome.detail, "wrong");
  EXPECT_EQ(failed.outcome.rel_err, 0.75);
  EXPECT_EQ(failed.outcome.max_share, std::numeric_limits<double>::infinity());
  EXPECT_EQ(exit_code(failed), 1);
}

TEST(Runner, AFaultMustFire) {
  const auto pass = [](int, const RunOptions&) { return passed(); };
  const CaseResult dropped = run(pass, 3, {Fault::Kind::kDropPut, -1, 77});
  EXPECT_EQ(exit_code(dropped), 1);
  EXPECT_NE(dropped.outcome.detail.find("--fault drop_put:77 never fired"), std::string::npos)
      << dropped.outcome.detail;
  EXPECT_EQ(exit_code(run(pass, 1, {Fault::Kind::kKill, 2, 0})), 1);
  EXPECT_EQ(exit_code(run(pass, 1, {Fault::Kind::kDelay, 2, 5})), 0) << "a delay may be shorter than the deadline";
  EXPECT_EQ(exit_code(run(pass, 1, {Fault::Kind::kMismatch, 2, 0})), 2) << "this operator does not inject it";
}

TEST(Runner, TheCauseIsToldAndNotTheRankThatWasAborted) {
  const CaseResult result = run([](int rank, const RunOptions&) -> CheckOutcome {
    if (rank == 0) return {false, "aborted", {StatusCode::kAborted, "by rank 3"}, 0, 0};
    if (rank == 3) return {false, "waited", {StatusCode::kDeadline, "for rank 1"}, 0, 0};
    return passed();
  });
  EXPECT_EQ(result.outcome.detail, "waited");
  EXPECT_EQ(exit_code(result), 4);
}

TEST(Runner, ExitCodesFollowTheStatus) {
  const auto code_of = [](StatusCode code) {
    return exit_code(run([code](int, const RunOptions&) { return CheckOutcome{false, "", {code, ""}, 0, 0}; }));
  };
  EXPECT_EQ(code_of(StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(code_of(StatusCode::kUnavailable), 3);
  EXPECT_EQ(code_of(StatusCode::kOutOfMemory), 3);
  EXPECT_EQ(code_of(StatusCode::kDeadline), 4);
  EXPECT_EQ(code_of(StatusCode::kPeerLost), 4);
  EXPECT_EQ(code_of(StatusCode::kMismatch), 1);
  EXPECT_EQ(code_of(StatusCode::kInternal), 1);
}

TEST(Runner, StopsAtTheFirstFailingScheduleAndNamesItsSeed) {
  std::atomic<int> checks = 0;
  const CaseResult result = run(
      [&](int rank, const RunOptions&) {
        if (rank == 0) ++checks;
        return checks == 3 ? CheckOutcome{false, "wrong", {}, 0, 0} : passed();
      },
      10);
  EXPECT_EQ(checks, 3);
  EXPECT_EQ(result.schedule_hashes.size(), 3u);
  EXPECT_EQ(result.outcome.detail, "schedule seed 13: wrong");
}

TEST(Runner, ScalesDownForTheEmulatorWhatNobodySet) {
  OperatorInfo op{"op", "", {{"m", "4", ""}, {"n", "4", ""}}, nullptr};
  const auto scaled = [&op](TargetKind target, const Params& settings) {
    CaseRequest request;
    request.op = &op;
    request.params = {{"m", "800"}, {"n", "700"}};
    for (const auto& [key, value] : settings) request.params[key] = value;
    request.options.target = target;
    scale_down(request, settings);
    return request;
  };
  EXPECT_FALSE(scaled(TargetKind::kEmuSm90, {}).scaled) << "an operator that does not say how";
  op.scaled_down = [](const Params& params, int ranks) {
    Params small = params;
    small["m"] = std::to_string(10 * ranks);
    small["n"] = "7";
    return small;
  };
  EXPECT_EQ(scaled(TargetKind::kEmuSm90, {}).params, (Params{{"m", "80"}, {"n", "7"}}));
  EXPECT_TRUE(scaled(TargetKind::kEmuSm90, {}).scaled);
  EXPECT_EQ(scaled(TargetKind::kEmuGfx942, {{"m", "640"}}).params, (Params{{"m", "640"}, {"n", "7"}}));
  EXPECT_EQ(scaled(TargetKind::kCuda, {}).params, (Params{{"m", "800"}, {"n", "700"}}));
  EXPECT_FALSE(scaled(TargetKind::kCuda, {}).scaled);
  EXPECT_FALSE(scaled(TargetKind::kEmuSm90, {{"m", "80"}, {"n", "7"}}).scaled);
  CaseResult result;
  result.request = scaled(TargetKind::kEmuSm90, {});
  result.request.label = "tests[0]";
  EXPECT_NE(table_row(result, false).find("op tests[0] scaled down to m=80 n=7"), std::string::npos);
}

TEST(Report, TableAndSummaryCountSkippedCases) {
  const std::vector<CaseResult> results = {run([](int, const RunOptions&) { return passed(); })};
  EXPECT_NE(table_row(results[0], false).find("pass"), std::string::npos);
  EXPECT_EQ(summary(results, {}), "1 passed, 0 failed\n");
  EXPECT_EQ(summary(results, {{"gemm-rs", {17, "not in this build"}}}),
            "1 passed, 0 failed, 17 skipped (gemm-rs 17: not in this build)\n");
}

TEST(Report, JsonHasAllFieldsAlsoForInfiniteErrors) {
  const std::vector<CaseResult> results = {run([](int, const RunOptions&) -> CheckOutcome {
    return {false, "\xff is not UTF-8", {}, std::numeric_limits<double>::infinity(), std::nan(""), 0};
  })};
  const auto root = nlohmann::json::parse(to_json(results, {{"gemm-rs", {17, "why"}}}, {{"version", "1"}}));
  EXPECT_EQ(root["schema_version"], kSchemaVersion);
  EXPECT_EQ(root["skipped"][0]["cases"], 17);
  const auto& entry = root["cases"].at(0);
  EXPECT_EQ(entry["op"], "chosen");
  EXPECT_EQ(entry["target"], "emu_sm90");
  EXPECT_EQ(entry["params"]["size"], "4");
  EXPECT_EQ(entry["pass"], false);
  EXPECT_TRUE(entry["rel_err"].is_number());
  EXPECT_TRUE(entry["max_share"].is_number());
  EXPECT_EQ(entry["distinct_schedule_hashes"], 1);
  EXPECT_EQ(entry["schedule_hash"].get<std::string>().size(), 16u);
}

TEST(PlainRequests, AreTheOperatorsUnlessSettingsMakeThemOne) {
  OperatorInfo op;
  op.name = "any";
  ASSERT_EQ(plain_requests(op).size(), 1u);
  EXPECT_TRUE(plain_requests(op)[0].params.empty());
  op.plain = {{{"size", "1"}}, {{"size", "2"}, {"dtype", "fp16"}}};
  ASSERT_EQ(plain_requests(op).size(), 2u);
  EXPECT_EQ(plain_requests(op)[1].params, op.plain[1]);
  EXPECT_EQ(plain_requests(op)[1].op, &op);
  ASSERT_EQ(plain_requests(op, {{"size", "3"}}).size(), 1u);
  EXPECT_EQ(plain_requests(op, {{"size", "3"}})[0].params, (Params{{"size", "3"}}));
}

/// Every list is allowed: nothing is refused before it runs.
TEST(PlainRequests, HaveParametersThatAreAllowed) {
  int lists = 0;
  for (const OperatorInfo& op : registered_ops()) {
    lists += op.plain.empty() ? 0 : 1;
    for (const CaseRequest& request : plain_requests(op)) {
      const auto made = op.make(request.params);
      EXPECT_TRUE(made.ok()) << op.name << ": " << made.status().to_string();
    }
  }
  EXPECT_EQ(lists, 4) << "attention, flash-decode, all-reduce, qwen3";
}

}  // namespace
}  // namespace farwarp::harness
