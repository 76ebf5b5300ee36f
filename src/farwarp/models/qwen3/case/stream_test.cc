// Decoding for more than eight sequences: their vectors stream. Through the harness: every number of columns, both
// dispatchers, contexts that cross key blocks and splits, prefill, several ranks.
#include <gtest/gtest.h>

#include <chrono>

#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"

namespace farwarp::harness {
namespace {

class Qwen3Stream : public testing::TestWithParam<TargetKind> {
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
  static CaseResult run(const std::string& settings, int schedules = 1, int calls = 1, int ranks = 1) {
    CaseRequest request = request_of(settings, ranks);
    request.options.calls = calls;
    request.schedules = schedules;
    return run_case(request, nullptr, [](int) {});
  }
  static void expect_pass(const std::string& settings, int schedules = 1, int calls = 1, int ranks = 1) {
    const CaseResult result = run(settings, schedules, calls, ranks);
    EXPECT_TRUE(result.outcome.pass) << settings << ": " << result.outcome.detail << " "
                                     << result.outcome.status.to_string();
  }
  static void expect_refused(const std::string& settings, const std::string& message) {
    const std::string detail = run(settings).outcome.detail;
    EXPECT_NE(detail.find(message), std::string::npos) << settings << ": " << detail;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Qwen3Stream, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Qwen3Stream, EveryNumberOfColumnsWithBothDispatchers) {
  expect_pass("model=nano,batch=16,prompt=1,tokens=1,launches=1,max_sms=3,dispatcher=both");
  expect_pass("model=nano,batch=20,prompt=1,tokens=1,launches=1,max_sms=4,dispatcher=both");
  if (GetParam() != TargetKind::kEmuSm90) return;
  expect_pass("model=nano,batch=33,prompt=1,tokens=1,launches=1,max_sms=3,dispatcher=both");
  expect_pass("model=nano,batch=64,prompt=1,tokens=1,launches=1,max_sms=4");
}

/// As five to eight sequences of a large model have them.
TEST_P(Qwen3Stream, FewSequencesHaveAnyForm) {
  expect_pass("model=nano,batch=5,prompt=2,tokens=2,launches=1,max_sms=3,vectors=streamed,dispatcher=both");
  expect_pass("model=nano,batch=8,prompt=1,tokens=1,launches=1,max_sms=3,vectors=streamed,temperature=1,top_k=7");
  expect_pass("model=nano,batch=8,prompt=1,tokens=1,launches=1,max_sms=3,vectors=packets");
  expect_refused("model=nano,batch=9,vectors=packets", "Qwen3Limits.vectors is packets");
}

/// A launch of all steps counts them, one of a single step does not: they take turns.
TEST_P(Qwen3Stream, LaunchesContinueAndCallsStartAnew) {
  expect_pass("model=nano,batch=9,prompt=2,tokens=1,launches=2,max_sms=3,dispatcher=both", 1, 2);
}

/// A worker has one group of tiles of a matrix, or several; of head dim 128.
TEST_P(Qwen3Stream, WorkersHaveOneGroupOfTilesOrSeveral) {
  expect_pass("model=nano,batch=9,prompt=1,tokens=1,launches=1,max_sms=1");
  expect_pass("model=tiny,batch=9,prompt=1,tokens=1,launches=1");
}

/// Of more than 16 columns four slices of a vector are in shared memory, and out has eight: a slice's place is filled
/// again while the vector is multiplied.
TEST_P(Qwen3Stream, VectorsAreLongerThanTheirRing) {
  expect_pass("model=nano8,batch=17,prompt=1,tokens=1,launches=1,max_sms=3,dispatcher=both");
  if (GetParam() == TargetKind::kEmuSm90) expect_pass("model=nano8,batch=33,prompt=1,tokens=1,launches=1,max_sms=4");
}

/// Each split has two key blocks at most, one of them new.
TEST_P(Qwen3Stream, PrefilledPromptsCrossSplits) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "the prefill takes too long on the emulator";
  expect_pass("model=nano,batch=9,prompt=140,tokens=2,launches=1,max_sms=2,prefill=64,splits=2");
}

/// Sequences begin while others are decoded. The prefill of gfx942 takes longer on the emulator.
TEST_P(Qwen3Stream, PromptsArePrefilledInChunks) {
  expect_pass("model=nano,batch=9,prompt=" + std::string(GetParam() == TargetKind::kEmuSm90 ? "18" : "4") +
              ",tokens=1,launches=2,max_sms=2,prefill=16");
}

TEST_P(Qwen3Stream, RanksGiveTheSameBitsWithBothDispatchers) {
  expect_pass("model=nano4,batch=10,prompt=1,tokens=1,launches=1,max_sms=3,dispatcher=both", 1, 1, 2);
}

/// A worker has 16 tiles of out and of down, of which 12 (sm90) or four are a group: sums are sent by groups and
/// collected by tasks, on the same threads.
TEST_P(Qwen3Stream, RanksAddTheSumsOfSeveralGroups) {
  expect_pass("model=nano4,batch=9,prompt=1,tokens=1,launches=1,max_sms=1", 1, 1, 2);
}

/// Of 16 columns eight ranks own two each, of 32 a warp has one owner's or two, of 64 a thread has a tile in each of
/// four rounds.
TEST_P(Qwen3Stream, FourAndEightRanksOwnColumns) {
  expect_pass("model=nano8,batch=9,prompt=1,tokens=1,launches=1,max_sms=2,dispatcher=both", 1, 1, 8);
  expect_pass("model=nano4,batch=20,prompt=1,tokens=1,launches=1,max_sms=2", 1, 1, 4);
  if (GetParam() == TargetKind::kEmuSm90)
    expect_pass("model=nano4,batch=33,prompt=1,tokens=1,launches=1,max_sms=2", 1, 1, 4);
}

/// A rank may be a launch ahead, and an owner's result may reach one rank long after another. On gfx942 a wave has
/// columns of all owners.
TEST_P(Qwen3Stream, LateRanksGiveTheSameBits) {
  expect_pass("model=nano4,batch=9,prompt=1,tokens=1,launches=2,max_sms=2,delay=300,oracle=0", 1, 1, 4);
}

TEST_P(Qwen3Stream, ManySchedules) { expect_pass("model=nano,batch=9,prompt=1,tokens=1,launches=2,max_sms=2", 4); }

/// Every number of columns, more candidates than a warp has lanes, fewer tokens than candidates, more sequences than
/// workers.
TEST_P(Qwen3Stream, TokensAreDrawn) {
  expect_pass("model=nano,batch=9,prompt=2,tokens=3,launches=1,max_sms=2,temperature=0.6,top_k=20,top_p=0.95");
  expect_pass("model=nano,batch=16,prompt=1,tokens=1,launches=2,max_sms=3,temperature=1,top_k=5,dispatcher=both");
  expect_pass("model=nano,batch=20,prompt=1,tokens=1,launches=1,max_sms=4,temperature=2,top_k=64,top_p=0.8");
  if (GetParam() != TargetKind::kEmuSm90) return;
  expect_pass("model=nano,batch=40,prompt=1,tokens=1,launches=2,max_sms=3,temperature=1,top_k=9,dispatcher=both");
  expect_pass("model=nano,batch=64,prompt=1,tokens=1,launches=1,temperature=1,top_k=33,top_p=0.9");
}

TEST_P(Qwen3Stream, RanksDrawTheSameTokensWithBothDispatchers) {
  expect_pass("model=nano4,batch=9,prompt=1,tokens=1,launches=1,max_sms=2,dispatcher=both,temperature=1,top_k=6", 1, 1,
              2);
}

TEST_P(Qwen3Stream, FourAndEightRanksDrawTheSameTokens) {
  if (GetParam() == TargetKind::kEmuSm90)
    expect_pass("model=nano4,batch=9,prompt=1,tokens=1,launches=1,max_sms=2,temperature=1,top_k=40", 1, 1, 4);
  expect_pass("model=nano8,batch=9,prompt=1,tokens=1,launches=1,max_sms=2,temperature=1,top_k=33", 1, 1, 8);
}

TEST_P(Qwen3Stream, DrawsPassManySchedules) {
  expect_pass("model=nano,batch=9,prompt=1,tokens=2,launches=1,max_sms=2,temperature=1,top_k=4",
              GetParam() == TargetKind::kEmuSm90 ? 4 : 2);
}

/// Keys before the first token are zeros, so that a short launch begins a page.
TEST_P(Qwen3Stream, ContextsCrossPages) {
  expect_pass("model=nano,batch=9,prompt=1,tokens=2,launches=1,max_sms=2,zeros=15,dispatcher=both");
  expect_pass("model=nano,batch=9,prompt=1,tokens=2,launches=1,max_sms=2,zeros=127,dispatcher=both,splits=2");
}

/// The first launch of a late rank: the other one names it, and after recover() a call is right.
TEST_P(Qwen3Stream, ALateRankOfADecoderThatSamplesIsNamed) {
  CaseRequest request =
      request_of("model=nano4,batch=9,prompt=1,tokens=1,launches=1,max_sms=2,temperature=1,top_k=4", 2);
  request.options.calls = 1;
  request.options.deadline = std::chrono::milliseconds(1000);
  request.options.fault = *parse_fault("delay:1:3000", 2);
  const CaseResult result = run_case(request, nullptr, [](int) {});
  EXPECT_FALSE(result.outcome.pass);
  EXPECT_NE(result.outcome.detail.find("rank 1"), std::string::npos) << result.outcome.detail;
  EXPECT_NE(result.outcome.detail.find("after recover() the next call was right"), std::string::npos)
      << result.outcome.detail;
}

TEST_P(Qwen3Stream, ZerosAreForPromptsOfOneToken) {
  expect_refused("model=nano,batch=9,tokens=1,zeros=3", "zeros is '3'");
}

TEST_P(Qwen3Stream, WhatIsRefusedIsNamed) {
  if (GetParam() == TargetKind::kEmuSm90)
    expect_refused("model=nano,batch=9,tokens=1,dispatcher=gang", "Qwen3Call.dispatcher is gang; allowed");
  expect_refused("model=nano,batch=9,tokens=1,temperature=1,top_k=65", "top_k");
  if (GetParam() == TargetKind::kEmuGfx942)
    expect_refused("model=nano,batch=33,tokens=1",
                   "Qwen3Limits.sequences is 33; allowed on this device, which has 63 KB of shared memory: 1 to 32");
}

}  // namespace
}  // namespace farwarp::harness
