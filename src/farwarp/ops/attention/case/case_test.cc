// attention through the harness: every kernel, sizes that divide nothing, ragged and paged sequences, all mappings; and
// errors in words.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "farwarp/harness/case_test_fixture.h"

namespace farwarp::harness {
namespace {

/// Three calls: spread, needle, mean.
TestedCase tested(const std::string& settings, int schedules) {
  return {.op = "attention", .settings = settings, .schedules = schedules, .calls = 3};
}
CaseResult run(const std::string& settings, int schedules = 20) { return run_case(tested(settings, schedules)); }
void expect_pass(const std::string& settings, int schedules = 20) { harness::expect_pass(tested(settings, schedules)); }

TEST(AttentionCases, SmallSizes) {
  expect_pass("heads=1,kv_heads=1,queries=1,head_dim=64");
  expect_pass("heads=3,kv_heads=3,queries=1,keys=65,head_dim=56,max_sms=1");
  expect_pass("heads=3,kv_heads=1,queries=63,head_dim=72,causal=1,batch=3,max_sms=2");
  expect_pass("heads=5,kv_heads=1,queries=65,head_dim=8,dtype=fp16,max_sms=3,row_gap=8");
}

TEST(AttentionCases, ManyHeadsAndGroups) {
  expect_pass("heads=12,kv_heads=12,queries=63,head_dim=64,max_sms=4", 5);
  expect_pass("heads=40,kv_heads=8,queries=20,keys=30,head_dim=80,max_sms=4,dtype=fp16", 5);
  expect_pass("heads=10,kv_heads=2,queries=65,keys=200,head_dim=64,causal=1", 5);
}

TEST(AttentionCases, SeveralSteps) {
  expect_pass("heads=1,kv_heads=1,queries=130,keys=420,head_dim=128", 10);
  expect_pass("heads=1,kv_heads=1,queries=130,keys=420,head_dim=64,causal=1", 10);
  expect_pass("heads=2,kv_heads=1,queries=200,keys=300,head_dim=80,window_left=60,causal=1,sinks=1", 10);
  expect_pass("heads=1,kv_heads=1,queries=260,keys=300,head_dim=64,window_left=20,window_right=9", 10);
  expect_pass("heads=1,kv_heads=1,queries=200,keys=90,head_dim=56,causal=1,sinks=1", 10);
}

TEST(AttentionCases, WideHeadsAndSoftcaps) {
  expect_pass("heads=3,kv_heads=1,queries=140,keys=200,head_dim=256,causal=1,max_sms=1", 5);
  expect_pass("heads=1,kv_heads=1,queries=70,keys=200,head_dim=136,dtype=fp16,page_size=16,ragged=padded", 5);
  expect_pass("heads=2,kv_heads=1,queries=70,keys=300,head_dim=64,softcap=5,causal=1,sinks=1", 5);
  expect_pass("heads=1,kv_heads=1,queries=70,keys=200,head_dim=256,softcap=50,inputs=large,dtype=fp16", 5);
  EXPECT_EQ(run("softcap=5,inputs=needle").outcome.status.message(),
            "parameter inputs is 'needle': allowed is another with a softcap");
}

TEST(AttentionCases, LargeLogits) {
  for (const char* more : {"", ",dtype=fp16,sinks=1", ",causal=1"})
    expect_pass(std::string("heads=2,kv_heads=1,queries=70,keys=300,head_dim=128,inputs=large") + more, 2);
}

TEST(AttentionCases, RaggedSequences) {
  expect_pass("batch=4,heads=2,kv_heads=1,queries=90,keys=140,head_dim=64,ragged=1,causal=1,max_sms=3");
  expect_pass("batch=3,heads=1,kv_heads=1,queries=40,keys=300,head_dim=72,ragged=1,sinks=1,row_gap=16");
  expect_pass("batch=3,heads=1,kv_heads=1,queries=40,keys=200,head_dim=128,ragged=padded");
  expect_pass("batch=3,queries=40,keys=90,query_lengths=7+0+40,key_lengths=90+5+61,causal=1");
  expect_pass("batch=2,queries=40,keys=90,query_lengths=1+40,key_lengths=3+90,page_size=16");
  EXPECT_EQ(run("batch=2,queries=40,keys=90,query_lengths=7,key_lengths=9+9").outcome.status.message(),
            "parameter query_lengths is 1 numbers: allowed is one of each of 2 sequences");
  EXPECT_EQ(run("batch=1,queries=40,keys=90,query_lengths=7,key_lengths=91").outcome.status.message(),
            "a number of parameter key_lengths is '91': allowed is an integer in 0..90");
}

TEST(AttentionCases, PagesInRandomOrder) {
  expect_pass("batch=3,heads=2,kv_heads=1,queries=33,keys=150,head_dim=64,ragged=1,page_size=16,causal=1");
  expect_pass("batch=3,heads=1,kv_heads=1,queries=20,keys=300,head_dim=128,ragged=padded,page_size=32");
  expect_pass("batch=2,heads=1,kv_heads=1,queries=20,keys=140,head_dim=80,page_size=64");
  expect_pass("batch=2,heads=2,kv_heads=2,queries=70,keys=300,head_dim=64,ragged=1,page_size=128");
  expect_pass("batch=2,heads=1,kv_heads=1,queries=40,keys=500,head_dim=64,ragged=padded,page_size=256");
}

TEST(AttentionCases, AllMappings) {
  for (const char* mapping : {"block_first", "block_first_swizzled", "head_first", "head_first_swizzled"}) {
    for (const char* causal : {"0", "1"})
      expect_pass(std::string("batch=2,heads=3,kv_heads=1,queries=150,keys=40,max_sms=4,mapping=") + mapping +
                      ",causal=" + causal,
                  2);
  }
}

TEST(AttentionCases, FromAGraph) { expect_pass("batch=3,ragged=1,queries=70,page_size=16,graph=1,max_sms=2", 3); }

// A launch of several milliseconds of the emulator's time; each wait is shorter.
TEST(AttentionCases, ALaunchMayTakeLongerThanTheDeadline) {
  CaseRequest request = request_of(tested("heads=16,kv_heads=2,queries=1000,head_dim=8,max_sms=1,inputs=mean", 1));
  request.options.calls = 1;
  request.options.deadline = std::chrono::milliseconds(1);
  const CaseResult result = run_case(request);
  EXPECT_TRUE(result.outcome.pass) << result.outcome.detail << " " << result.outcome.status.to_string();
}

TEST(AttentionCases, RefusesInWords) {
  for (const auto& [settings, words] :
       {std::pair("kv_heads=3", "kv_heads is 3"),
        std::pair("head_dim=12", "head_dim is '12': allowed is a multiple of 8"),
        std::pair("page_size=24", "page_size is 24"), std::pair("causal=1,window_right=2", "window_right is 2"),
        std::pair("inputs=needle,head_dim=8,keys=300", "inputs is 'needle'")}) {
    const CaseResult result = run(settings, 1);
    const std::string text = result.outcome.detail + result.outcome.status.to_string();
    EXPECT_FALSE(result.outcome.pass) << settings;
    EXPECT_NE(text.find(words), std::string::npos) << settings << ": " << text;
  }
}

TEST(AttentionCases, ScaledDownKeepPartialBlocksAndGroups) {
  CaseRequest request = request_of(tested("batch=8,heads=128,kv_heads=8,queries=32800,keys=131072", 1));
  scale_down(request, {});
  EXPECT_EQ(request.params["batch"], "2");
  EXPECT_EQ(request.params["heads"], "4");
  EXPECT_EQ(request.params["kv_heads"], "2");
  EXPECT_EQ(request.params["queries"], "416");
  EXPECT_EQ(request.params["keys"], "384");
}

}  // namespace
}  // namespace farwarp::harness
