// Qwen3 through the harness: both head dims, every number of columns, contexts that cross pages and splits, launches
// that continue, dispatchers, prefill.
#include <gtest/gtest.h>

#include <chrono>

#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"

namespace farwarp::harness {
namespace {

class Qwen3Cases : public testing::TestWithParam<TargetKind> {
 protected:
  static CaseRequest request_of(const std::string& settings, int ranks) {
    CaseRequest request;
    request.op = find_operator("qwen3");
    if (!add_settings(settings, request.params).ok()) ADD_FAILURE() << settings;
    request.options.target = GetParam();
    request.options.ranks = ranks;
    request.options.seed = 5;
    return request;
  }
  static void expect_pass(const std::string& settings, int schedules = 1, int calls = 1, int ranks = 1) {
    CaseRequest request = request_of(settings, ranks);
    request.options.calls = calls;
    request.schedules = schedules;
    const CaseResult result = run_case(request, nullptr, [](int) {});
    EXPECT_TRUE(result.outcome.pass) << settings << ": " << result.outcome.detail << " "
                                     << result.outcome.status.to_string();
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Qwen3Cases, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Qwen3Cases, HeadDimsAndColumns) {
  for (const char* settings :
       {"model=tiny,batch=1,prompt=2,tokens=2,launches=1", "model=tiny64,batch=2,prompt=1,tokens=1,launches=2",
        "model=nano,batch=3,prompt=3,tokens=2,launches=2", "model=nano,batch=8,prompt=2,tokens=2,launches=1"})
    expect_pass(settings);
}

TEST_P(Qwen3Cases, LaunchesContinueAndCallsStartAnew) {
  expect_pass("model=nano,batch=2,prompt=2,tokens=2,launches=3,max_sms=3", 1, 2);
}

TEST_P(Qwen3Cases, ContextsCrossPages) { expect_pass("model=nano,batch=1,prompt=18,tokens=18,launches=1,max_sms=2"); }

/// The first keys are prefilled, as decoding them takes long.
TEST_P(Qwen3Cases, ContextsCrossSplits) {
  expect_pass("model=nano,batch=1,prompt=127,tokens=4,launches=1,max_sms=2,prefill=64");
}

TEST_P(Qwen3Cases, SplitsHaveSeveralKeyBlocks) {
  expect_pass("model=nano,batch=1,prompt=127,tokens=4,launches=1,max_sms=2,splits=1,prefill=64");
}

TEST_P(Qwen3Cases, DispatchersGiveTheSameBits) {
  expect_pass("model=nano,batch=2,prompt=2,tokens=2,launches=2,dispatcher=both,max_sms=4");
}

TEST_P(Qwen3Cases, RanksDecodeTogether) {
  expect_pass("model=nano4,batch=1,prompt=2,tokens=2,launches=2,max_sms=4", 1, 1, 2);
  expect_pass("model=nano4,batch=3,prompt=1,tokens=2,launches=2,max_sms=3", 1, 1, 4);
}

/// The last rank has no tokens.
TEST_P(Qwen3Cases, EightRanksDecodeTogether) {
  expect_pass("model=nano8,batch=2,prompt=1,tokens=1,launches=2,max_sms=2", 1, 1, 8);
}

TEST_P(Qwen3Cases, RanksGiveTheSameBitsWithBothDispatchers) {
  expect_pass("model=nano4,batch=2,prompt=1,tokens=1,launches=2,max_sms=2,dispatcher=both", 1, 1, 2);
}

TEST_P(Qwen3Cases, RanksPassManySchedules) {
  expect_pass("model=nano4,batch=1,prompt=1,tokens=2,launches=1,max_sms=2", 4, 1, 4);
}

/// More launches than a burst has; a rank may be a launch ahead.
TEST_P(Qwen3Cases, LateRanksGiveTheSameBits) {
  expect_pass("model=nano4,batch=1,prompt=2,tokens=1,launches=9,max_sms=2,delay=300", 1, 1, 2);
  expect_pass("model=nano4,batch=1,prompt=1,tokens=2,launches=2,max_sms=2,delay=300,oracle=0", 1, 1, 2);
}

TEST_P(Qwen3Cases, ACheckComparesWithSomething) {
  CaseRequest request = request_of("model=nano,oracle=0", 1);
  EXPECT_NE(run_case(request, nullptr, [](int) {}).outcome.detail.find("oracle"), std::string::npos);
}

TEST_P(Qwen3Cases, ARefusedDispatcherIsNamed) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "has gang";
  const CaseResult result = run_case(request_of("model=nano,batch=1,tokens=1,dispatcher=gang", 1), nullptr, [](int) {});
  EXPECT_NE(result.outcome.detail.find("dispatcher is gang"), std::string::npos) << result.outcome.detail;
}

/// Every number of columns, more candidates than a warp has lanes, fewer tokens than candidates.
TEST_P(Qwen3Cases, TokensAreDrawn) {
  for (const char* settings :
       {"model=nano,batch=1,prompt=2,tokens=3,launches=1,max_sms=2,temperature=0.6,top_k=20,top_p=0.95",
        "model=nano,batch=2,prompt=1,tokens=2,launches=2,max_sms=3,temperature=1,top_k=64",
        "model=nano,batch=3,prompt=1,tokens=2,launches=2,max_sms=2,temperature=1,top_k=5,top_p=0.9",
        "model=nano,batch=8,prompt=1,tokens=1,launches=1,temperature=2,top_k=40,top_p=0.8"})
    expect_pass(settings);
}

TEST_P(Qwen3Cases, RanksDrawTheSameTokensWithBothDispatchers) {
  expect_pass("model=nano4,batch=1,prompt=1,tokens=1,launches=1,max_sms=2,dispatcher=both,temperature=1,top_k=6", 1, 1,
              2);
}

TEST_P(Qwen3Cases, EightRanksDrawTheSameTokens) {
  expect_pass("model=nano8,batch=1,prompt=1,tokens=1,launches=1,max_sms=2,temperature=1,top_k=33", 1, 1, 8);
}

TEST_P(Qwen3Cases, DrawsPassManySchedules) {
  expect_pass("model=nano,batch=2,prompt=1,tokens=2,launches=1,max_sms=2,temperature=1,top_k=4", 3);
}

/// 64 rows and 16.
TEST_P(Qwen3Cases, ALastChunkHasSmallerProducts) {
  expect_pass("model=nano,batch=1,prompt=70,tokens=1,launches=1,max_sms=2,prefill=64");
}

/// Two sequences begin while the first is decoded. One's prompt may have one token.
TEST_P(Qwen3Cases, PromptsArePrefilledInChunks) {
  expect_pass("model=nano,batch=3,prompt=38,tokens=2,launches=3,max_sms=2,prefill=16");
}

TEST_P(Qwen3Cases, APromptOfOneTokenNeedsNoPrefill) {
  expect_pass("model=nano,batch=1,prompt=1,tokens=1,launches=1,max_sms=2,prefill=16");
}

TEST_P(Qwen3Cases, PrefilledPromptsCrossSplits) {
  expect_pass("model=nano,batch=1,prompt=140,tokens=1,launches=1,max_sms=2,prefill=64");
}

TEST_P(Qwen3Cases, HeadsOf128ArePrefilled) {
  expect_pass("model=tiny,batch=1,prompt=18,tokens=1,launches=1,max_sms=3,prefill=17");
}

TEST_P(Qwen3Cases, RanksPrefillTogether) {
  expect_pass("model=nano4,batch=1,prompt=20,tokens=1,launches=1,max_sms=2,prefill=16", 1, 1, 2);
  if (GetParam() == TargetKind::kEmuSm90)
    expect_pass("model=nano4,batch=1,prompt=6,tokens=1,launches=1,max_sms=2,prefill=16", 1, 1, 4);
}

TEST_P(Qwen3Cases, PrefillPassesManySchedules) {
  expect_pass("model=nano,batch=1,prompt=4,tokens=1,launches=1,max_sms=2,prefill=16", 3);
}

/// The first launch of a late rank: the other one names it, and after recover() a call is right.
TEST_P(Qwen3Cases, ALateOrMissingRankIsNamed) {
  CaseRequest request = request_of("model=nano4,batch=1,prompt=1,tokens=1,launches=1,max_sms=2", 2);
  request.options.deadline = std::chrono::milliseconds(1000);
  for (const char* fault : {"delay:1:3000", "kill:1", "mismatch:1"}) {
    request.options.fault = *parse_fault(fault, 2);
    const CaseResult result = run_case(request, nullptr, [](int) {});
    EXPECT_FALSE(result.outcome.pass) << fault;
    EXPECT_NE(result.outcome.detail.find("rank 1"), std::string::npos) << fault << ": " << result.outcome.detail;
    const bool recovers = request.options.fault.kind == Fault::Kind::kDelay;
    EXPECT_EQ(result.outcome.detail.find("after recover() the next call was right") != std::string::npos, recovers)
        << fault << ": " << result.outcome.detail;
  }
}

TEST_P(Qwen3Cases, ManySchedules) { expect_pass("model=nano,batch=1,prompt=1,tokens=2,launches=1,max_sms=2", 8); }

}  // namespace
}  // namespace farwarp::harness
