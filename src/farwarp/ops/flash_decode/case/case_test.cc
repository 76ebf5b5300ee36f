// flash-decode through the harness: every kernel, every edge, and the errors that a check must find.
#include <gtest/gtest.h>

#include "farwarp/harness/case_test_fixture.h"

namespace farwarp::harness {
namespace {

class FlashDecodeCases : public CaseTest {
 protected:
  FlashDecodeCases() : CaseTest("flash-decode", 11) {}
  CaseResult run(const std::string& settings, int schedules = 2, int ranks = 1, const std::string& fault = "") const {
    return CaseTest::run(settings, ranks, fault.empty() ? schedules : 1, 2, fault);
  }
  void expect_pass(const std::string& settings, int schedules = 2, int ranks = 1) const {
    CaseTest::expect_pass(settings, ranks, schedules);
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, FlashDecodeCases, testing::ValuesIn(kEmulatedTargets), name_of_target);

TEST_P(FlashDecodeCases, EveryKernel) {
  for (const char* dtype : {"bf16", "fp16"}) {
    for (const char* dim : {"64", "128"}) {
      for (const char* kv_dtype : {"same", "fp8"}) {
        for (const char* page_size : {"1", "16", "64", "128"})
          expect_pass(std::string("max_keys=384,dtype=") + dtype + ",head_dim=" + dim + ",kv_dtype=" + kv_dtype +
                          ",page_size=" + page_size,
                      1);
        for (const char* query_heads : {"24", "80"}) {  // 12 and 40 rows of an item: other kernels on Hopper
          for (const char* page_size : {"1", "64"})
            expect_pass(std::string("max_keys=128,batch=1,kv_heads=2,dtype=") + dtype + ",head_dim=" + dim +
                            ",kv_dtype=" + kv_dtype + ",page_size=" + page_size + ",query_heads=" + query_heads,
                        1);
        }
      }
    }
  }
}

TEST_P(FlashDecodeCases, HeadsAndTokens) {
  for (const char* settings :
       {"query_heads=2,kv_heads=2", "query_heads=8,kv_heads=1", "query_heads=80,kv_heads=1",
        "query_tokens=8,query_heads=20,kv_heads=2,max_keys=160", "query_tokens=4,layout=hnd", "head_dim=8",
        "head_dim=72,page_size=1", "head_dim=120,dtype=fp16", "kv_dtype=fp8,head_dim=80"})
    expect_pass(settings);
}

TEST_P(FlashDecodeCases, WindowsAndSinks) {
  for (const char* settings : {"window=1", "window=50,query_tokens=3", "window=64,page_size=1", "window=128,sinks=1",
                               "window=100,query_tokens=2,kv_dtype=fp8", "sinks=1,lengths=short,query_tokens=3",
                               "window=200,max_keys=640,page_size=128,layout=hnd"})
    expect_pass(settings);
}

TEST_P(FlashDecodeCases, GivenLengths) {
  for (const char* settings : {"lengths=12+320+0", "lengths=1+2+3,page_size=1", "batch=1,lengths=100,kv_dtype=fp8"})
    expect_pass(settings);
  expect_pass("lengths=12+320+0,kv_shards=all", 2, 3);
  EXPECT_EQ(run("lengths=12+321+0", 1).outcome.status.message(),
            "a number of parameter lengths is '321': allowed is an integer in 0..320");
}

TEST_P(FlashDecodeCases, NothingToSee) {
  for (const char* settings : {"lengths=empty", "lengths=empty,sinks=1", "lengths=short,query_tokens=8",
                               "lengths=short,page_size=1,kv_dtype=fp8"})
    expect_pass(settings);
  expect_pass("lengths=empty,kv_shards=all", 2, 3);
  expect_pass("lengths=short,kv_shards=all,sinks=1,batch=5", 3, 3);
}

TEST_P(FlashDecodeCases, LargeLogits) {
  for (const char* settings :
       {"logits=large,head_dim=128", "logits=large,dtype=fp16,sinks=1", "logits=large,kv_dtype=fp8,split_keys=64"})
    expect_pass(settings);
  expect_pass("logits=large,kv_shards=all", 2, 2);
}

TEST_P(FlashDecodeCases, ManySplitsManySequencesFewBlocks) {
  expect_pass("max_keys=2048,split_keys=64,batch=1,lengths=full");
  expect_pass("batch=70,max_keys=160");
  expect_pass("max_keys=640,max_sms=1,batch=4");
  expect_pass("graph=1,burst=3,lse=0");
}

TEST_P(FlashDecodeCases, ManySchedules) {
  expect_pass("max_keys=640,query_tokens=2,sinks=1", 20);
  expect_pass("max_keys=320,kv_dtype=fp8,page_size=1", 12);
}

TEST_P(FlashDecodeCases, RanksThatShareKeys) {
  for (const char* exchange : {"one-shot", "two-shot"}) {
    const std::string both = std::string("kv_shards=all,exchange=") + exchange;
    expect_pass(both + ",sinks=1", 4, 3);
    expect_pass(both + ",kv_dtype=fp8,page_size=1,head_dim=128", 3, 2);
    expect_pass(both + ",burst=5,delay=30,batch=1,max_keys=128", 8, 4);
    expect_pass(both + ",batch=1,query_heads=1,kv_heads=1", 2, 8);  // fewer rows than ranks
    expect_pass(both + ",query_heads=160,kv_heads=2,max_keys=128", 2, 2);
    expect_pass(both, 3, 1);
  }
}

TEST_P(FlashDecodeCases, FaultsAreNoticed) {
  for (const char* exchange : {"one-shot", "two-shot"}) {
    const std::string both = std::string("kv_shards=all,exchange=") + exchange;
    const CaseResult dropped = run(both, 1, 3, "drop_put:2"), killed = run(both, 1, 3, "kill:1");
    EXPECT_EQ(dropped.outcome.status.code(), StatusCode::kDeadline);
    EXPECT_NE(dropped.outcome.detail.find("the next call was right"), std::string::npos) << dropped.outcome.detail;
    EXPECT_FALSE(killed.outcome.pass);
    EXPECT_NE(killed.outcome.detail.find("for rank 1"), std::string::npos) << killed.outcome.detail;
    EXPECT_EQ(run(both, 1, 3, "mismatch:1").outcome.status.code(), StatusCode::kMismatch);
    EXPECT_TRUE(run(both, 1, 3, "delay:1:5").outcome.pass);
  }
}

TEST_P(FlashDecodeCases, BadInputIsNamedOnAllRanks) {
  for (const char* page_size : {"1", "16"}) {
    for (const auto& [wrong, what] : {std::pair("page", "block_table"), std::pair("negative_page", "block_table"),
                                      std::pair("length", "lengths")}) {
      const std::string settings = std::string("lengths=full,wrong=") + wrong + ",page_size=" + page_size;
      for (const auto& [more, ranks] : {std::pair("", 1), std::pair(",kv_shards=all", 3)}) {
        const CaseResult result = run(settings + more, 1, ranks);
        EXPECT_EQ(result.outcome.status.code(), StatusCode::kBadInput) << settings << more;
        EXPECT_NE(result.outcome.status.message().find(what), std::string::npos) << result.outcome.status.message();
      }
    }
  }
}

TEST_P(FlashDecodeCases, RefusesInWords) {
  const CaseResult result = run("head_dim=24,kv_dtype=fp8");
  EXPECT_NE(result.outcome.detail.find("FlashDecodeDesc.head_dim is 24"), std::string::npos) << result.outcome.detail;
}

}  // namespace
}  // namespace farwarp::harness
