// A sample of targets, ranks, sequences and dispatchers that has each pair of them. The context of each sequence begins
// a page in its second token.
//
// FARWARP_TEST_SCHEDULES=200 qwen3_pairs_test runs each line under 200 schedules instead of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"
#include "farwarp/models/qwen3/qwen3.h"

namespace farwarp::harness {
namespace {

struct Line {
  TargetKind target;
  int ranks, batch;
  FleetDispatcher dispatcher;

  std::string name() const {
    return std::string(name_of(target)) + "_" + std::to_string(ranks) + "_ranks_" + std::to_string(batch) +
           "_sequences_" + std::string(name_of(dispatcher));
  }
};

constexpr auto kSm90 = TargetKind::kEmuSm90, kGfx942 = TargetKind::kEmuGfx942;
/// With 16 sequences vectors stream.
constexpr Line kSample[] = {{kSm90, 1, 1, FleetDispatcher::kStatic},  {kGfx942, 1, 3, FleetDispatcher::kGraph},
                            {kGfx942, 1, 16, FleetDispatcher::kGang}, {kSm90, 2, 1, FleetDispatcher::kGraph},
                            {kGfx942, 2, 3, FleetDispatcher::kGang},  {kGfx942, 2, 16, FleetDispatcher::kStatic},
                            {kGfx942, 4, 1, FleetDispatcher::kGang},  {kSm90, 4, 3, FleetDispatcher::kStatic},
                            {kSm90, 4, 16, FleetDispatcher::kGraph}};

TEST(Qwen3Pairs, TheSampleHasEachPair) {
  using Values = std::vector<int>;
  const auto values_of = [](const Line& line) {
    return Values{static_cast<int>(line.target), line.ranks, line.batch, static_cast<int>(line.dispatcher)};
  };
  std::vector<Values> all;
  for (const TargetKind target : {kSm90, kGfx942}) {
    for (const int ranks : {1, 2, 4}) {
      for (const int batch : {1, 3, 16}) {
        for (const FleetDispatcher dispatcher :
             {FleetDispatcher::kStatic, FleetDispatcher::kGraph, FleetDispatcher::kGang}) {
          if (target != kSm90 || dispatcher != FleetDispatcher::kGang)
            all.push_back(values_of({target, ranks, batch, dispatcher}));
        }
      }
    }
  }
  for (const Values& wanted : all) {
    for (std::size_t first = 0; first < wanted.size(); ++first) {
      for (std::size_t second = first + 1; second < wanted.size(); ++second) {
        bool found = false;
        for (const Line& line : kSample) {
          const Values values = values_of(line);
          found = found || (values[first] == wanted[first] && values[second] == wanted[second]);
        }
        EXPECT_TRUE(found) << "values " << wanted[first] << " of " << first << " and " << wanted[second] << " of "
                           << second;
      }
    }
  }
}

class Qwen3Pairs : public testing::TestWithParam<Line> {
 protected:
  void SetUp() override { setenv("FARWARP_EMU_XCDS", "2", 1); }
  void TearDown() override { unsetenv("FARWARP_EMU_XCDS"); }
};
INSTANTIATE_TEST_SUITE_P(Sample, Qwen3Pairs, testing::ValuesIn(kSample),
                         [](const auto& info) { return info.param.name(); });

TEST_P(Qwen3Pairs, Passes) {
  const Line& line = GetParam();
  const char* const schedules = std::getenv("FARWARP_TEST_SCHEDULES");
  CaseRequest request;
  request.op = find_operator("qwen3");
  const std::string settings = "model=" + std::string(line.ranks == 1 ? "nano" : "nano4") +
                               ",prompt=1,tokens=2,launches=1,zeros=15,max_sms=2,batch=" + std::to_string(line.batch) +
                               ",dispatcher=" + std::string(name_of(line.dispatcher));
  ASSERT_TRUE(add_settings(settings, request.params).ok()) << settings;
  request.options.target = line.target;
  request.options.ranks = line.ranks;
  request.options.seed = 1;
  request.options.calls = 1;
  request.schedules = schedules == nullptr ? 1 : std::max(1, std::atoi(schedules));
  const CaseResult result = run_case(request, nullptr, [](int) {});
  EXPECT_TRUE(result.outcome.pass) << settings << ": " << result.outcome.detail << " "
                                   << result.outcome.status.to_string();
}

}  // namespace
}  // namespace farwarp::harness
