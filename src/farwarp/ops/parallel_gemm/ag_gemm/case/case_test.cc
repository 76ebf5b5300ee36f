// ag-gemm through the harness, on both emulated targets: odd shapes, delays, faults.
#include <gtest/gtest.h>

#include "farwarp/harness/case_test_fixture.h"

namespace farwarp::harness {
namespace {

class AgGemmCases : public CaseTest {
 protected:
  AgGemmCases() : CaseTest("ag-gemm", 7) {}
};

TEST_P(AgGemmCases, FewRows) {
  expect_pass("m=8,n=64,k=24", 8);
  expect_pass("m=64,n=320,k=360,has_bias=1", 8);
  expect_pass("m=40,n=200,k=72,dtype=fp16", 5);
  expect_pass("m=40,n=144,k=520,splits=2", 2);
}

// Splits and remainders of K, few blocks, more calls than inboxes, bursts with late ranks.
TEST_P(AgGemmCases, FewRowsAsWords) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "words are Hopper's";
  expect_pass("m=63,n=120,k=360,burst=4,delay=20,exchange=words", 3, 20, 3);
  expect_pass("m=60,n=72,k=1160,splits=4,dtype=fp16,return_x=1,exchange=words", 3);
  expect_pass("m=48,n=3096,k=136,max_sms=3,exchange=words", 3);
  expect_pass("m=48,n=72,k=360,comm_blocks=5,splits=1,graph=1,exchange=words", 3, 2, 4);
  expect_pass("m=32,n=32,k=72,exchange=words", 4, 1, 20);
  expect_pass("m=7,n=112,k=8,exchange=words", 7, 2, 9);
  expect_pass("m=16,n=64,k=2056,exchange=words,return_x=1", 8);
}

TEST_P(AgGemmCases, ManyRowsAsWords) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "words are Hopper's";
  expect_pass("m=192,n=72,k=328,burst=5,delay=20,exchange=words", 3, 10, 3);
  expect_pass("m=512,n=80,k=136,has_bias=1,return_x=1,exchange=words", 2);
  expect_pass("m=258,n=400,k=520,max_sms=3,tile_columns=128,dtype=fp16,exchange=words", 2);
  expect_pass("m=258,n=400,k=520,tile_columns=192,exchange=words", 2);
  expect_pass("m=150,n=128,k=520,tile_columns=64,splits=2,return_x=1,exchange=words", 2);
  expect_pass("m=130,n=40,k=72,exchange=words", 1);
}

TEST_P(AgGemmCases, Boxes) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "elsewhere there is nothing else";
  expect_pass("exchange=boxes,m=64,n=320,k=360,has_bias=1", 8);
  expect_pass("exchange=boxes,m=40,n=144,k=520,splits=2,return_x=1", 2);
  expect_pass("exchange=boxes,m=99,n=120,k=200", 3);
  expect_pass("exchange=boxes,m=512,n=80,k=136,has_bias=1,return_x=1", 2);
  expect_pass("exchange=boxes,m=258,n=144,k=520,max_sms=3", 2);
  expect_pass("exchange=boxes,m=96,n=24,k=136,burst=3,delay=40", 3, 25, 3);
}

TEST_P(AgGemmCases, TilesOfSeveralRanksRows) {
  expect_pass("m=99,n=120,k=200", 3);
  expect_pass("m=168,n=112,k=264,has_bias=1", 7);
  expect_pass("m=130,n=80,k=136,max_sms=2", 2);
}

TEST_P(AgGemmCases, OwnRowsApart) { expect_pass("m=512,n=80,k=136,has_bias=1", 2); }

TEST_P(AgGemmCases, PiecesAlongK) { expect_pass("m=258,n=144,k=520,max_sms=3", 2); }

TEST_P(AgGemmCases, ManySchedulesOfLateRanks) { expect_pass("m=96,n=24,k=136,burst=3,delay=40", 3, 25, 3); }

TEST_P(AgGemmCases, GraphsAndRepetitions) {
  expect_pass("m=72,n=48,k=136,graph=1", 3, 2, 4);
  expect_pass("m=72,n=48,k=136,repeat=4,delay=20", 3);
}

TEST_P(AgGemmCases, OneRank) { expect_pass("m=130,n=40,k=72", 1); }

// Few rows, shards of parts of tiles and of whole tiles, pieces along K, splits, graphs, one rank: every order of
// pieces.
TEST_P(AgGemmCases, ReturnsX) {
  expect_pass("return_x=1,m=8,n=64,k=24", 8);
  expect_pass("return_x=1,m=40,n=200,k=72,dtype=fp16,has_bias=1", 5);
  expect_pass("return_x=1,m=40,n=144,k=520,splits=2", 2);
  expect_pass("return_x=1,m=168,n=112,k=264", 7);
  expect_pass("return_x=1,m=512,n=80,k=136", 2);
  expect_pass("return_x=1,m=258,n=144,k=520,max_sms=3", 2);
  expect_pass("return_x=1,m=96,n=24,k=136,burst=3,delay=40,repeat=2", 3, 10, 3);
  expect_pass("return_x=1,m=72,n=48,k=136,graph=1,path=best", 3, 2, 4);
  expect_pass("return_x=1,m=130,n=40,k=72", 1);
}

TEST_P(AgGemmCases, ReturningXIsForGathersOnly) {
  const CaseResult result =
      run_case(TestedCase{.op = "gemm-rs", .settings = "return_x=1", .target = GetParam(), .ranks = 2});
  EXPECT_EQ(result.outcome.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(result.outcome.detail.find("return_x is 1"), std::string::npos) << result.outcome.detail;
}

TEST_P(AgGemmCases, FaultsAreNoticedAndNamed) {
  const bool hopper = GetParam() == TargetKind::kEmuSm90;
  for (const std::string base : {"m=72,n=48,k=136", "m=144,n=48,k=1160,max_sms=2", "m=24,n=48,k=360"}) {
    for (const std::string exchange : {"auto", "words", "boxes"}) {
      if (!hopper && exchange != "auto") continue;
      const std::string settings = base + ",exchange=" + exchange;
      const CaseResult dropped = run(settings, 3, 1, 1, "drop_put:1");
      EXPECT_FALSE(dropped.outcome.pass);
      EXPECT_NE(dropped.outcome.detail.find("a piece of a peer's x"), std::string::npos) << dropped.outcome.detail;
      EXPECT_NE(dropped.outcome.detail.find("the next call was right"), std::string::npos) << dropped.outcome.detail;
    }
  }
  EXPECT_FALSE(run("m=72,n=48,k=136", 3, 1, 1, "mismatch:1").outcome.pass);
}

INSTANTIATE_TEST_SUITE_P(Targets, AgGemmCases, testing::ValuesIn(kEmulatedTargets), name_of_target);

}  // namespace
}  // namespace farwarp::harness
