// The all-reduce on both emulated targets: through the harness, and its API as a user calls it.
#include "all_reduce.h"

#include <gtest/gtest.h>

#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"
#include "farwarp/world/host/bootstrap.h"
#include "plan.h"

namespace farwarp::lessons {
namespace {

class AllReduceTest : public testing::TestWithParam<TargetKind> {
 protected:
  static harness::CaseResult run(const std::string& settings, const std::string& fault = "", int ranks = 3) {
    harness::CaseRequest request;
    request.op = harness::find_operator("lesson-05");
    EXPECT_TRUE(harness::add_settings(settings, request.params).ok());
    request.options.target = GetParam();
    request.options.ranks = ranks;
    request.options.calls = 4;
    if (!fault.empty()) request.options.fault = *harness::parse_fault(fault, ranks);
    request.schedules = fault.empty() ? 10 : 1;
    return harness::run_case(request, nullptr, [](int) {});
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, AllReduceTest, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(AllReducePlanTest, CountsBlocksAndBytes) {
  MachineShape shape;
  shape.multiprocessors = 4;
  const auto small = plan_all_reduce({.elements = 100}, shape, 2);
  const auto large = plan_all_reduce({.elements = 100000}, shape, 2);
  const auto limited = plan_all_reduce({.elements = 100000, .max_sms = 3}, shape, 2);
  ASSERT_TRUE(small.ok() && large.ok() && limited.ok());
  EXPECT_EQ(small->blocks, 1);
  EXPECT_EQ(large->blocks, 4);
  EXPECT_EQ(limited->blocks, 3);
  EXPECT_EQ(limited->flag_bytes, 2 * 2 * 3 * 8);
  EXPECT_EQ(large->vector_bytes, 2 * 2 * 100000 * 4);
  EXPECT_EQ(plan_all_reduce({.elements = 1 << 21}, shape, 2).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(AllReduceTest, SumsToTheBit) {
  for (const char* settings : {"elements=1", "elements=255", "elements=1000", "elements=3000,max_sms=3"}) {
    const harness::CaseResult result = run(settings);
    EXPECT_TRUE(result.outcome.pass) << settings << ": " << result.outcome.detail;
  }
  for (const int ranks : {1, 2, 8}) EXPECT_TRUE(run("elements=300", "", ranks).outcome.pass) << ranks;
}

TEST_P(AllReduceTest, FaultsAreNoticed) {
  EXPECT_FALSE(run("elements=300", "kill:1").outcome.pass);
  EXPECT_EQ(run("elements=300", "mismatch:1").outcome.status.code(), StatusCode::kMismatch);
}

TEST_P(AllReduceTest, RefusesWhatIsWrong) {
  const TargetKind target = GetParam();
  const Status status = run_ranks(2, [target](const std::shared_ptr<Bootstrap>& bootstrap) -> Status {
    WorldOptions options;
    options.target = target;
    auto world = World::create(bootstrap, options);
    if (!world.ok()) return world.status();
    const auto refused = AllReduce::create(*world, {.elements = 0});
    EXPECT_NE(refused.status().message().find("AllReduceDesc.elements is 0; allowed: 1 to"), std::string::npos)
        << refused.status().message();
    auto op = AllReduce::create(*world, {.elements = 4});
    if (!op.ok()) return op.status();
    EXPECT_EQ((*op)(nullptr, nullptr, {}).code(), StatusCode::kInvalidArgument);
    AllReduce moved = std::move(*op);
    EXPECT_EQ(op->close().code(), StatusCode::kMisuse);
    EXPECT_TRUE(moved.close().ok());
    EXPECT_EQ(moved.close().code(), StatusCode::kMisuse);
    EXPECT_EQ(moved(nullptr, nullptr, {}).code(), StatusCode::kMisuse);
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace farwarp::lessons
