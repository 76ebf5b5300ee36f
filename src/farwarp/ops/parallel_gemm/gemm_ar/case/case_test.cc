// gemm-ar through the harness, on both emulated targets: one-shot and two-shot, odd shapes, delays, faults.
#include <gtest/gtest.h>

#include <vector>

#include "farwarp/harness/case_test_fixture.h"

namespace farwarp::harness {
namespace {

class GemmArCases : public CaseTest {
 protected:
  GemmArCases() : CaseTest("gemm-ar", 9) {}
};

/// A case for each form of gemm-ar that the target has.
std::vector<const char*> few_and_many() {
  if (GemmArCases::GetParam() == TargetKind::kEmuGfx942) return {"m=8,n=48,k=72", "m=40,n=48,k=72"};
  return {"m=8,n=48,k=72", "m=40,n=48,k=72,exchange=words", "m=70,n=48,k=72", "m=40,n=48,k=72,exchange=boxes"};
}

TEST_P(GemmArCases, Words) {
  expect_pass("m=1,n=64,k=64", 8);
  expect_pass("m=13,n=72,k=216,has_bias=1", 3);
  expect_pass("m=16,n=40,k=528,splits=2,dtype=fp16", 2);
  if (GetParam() == TargetKind::kEmuSm90) expect_pass("m=13,n=72,k=1080,splits=4,has_bias=1", 3, 10);
  expect_pass("m=10,n=72,k=216,burst=3,delay=30", 3, 3, 10);
}

TEST_P(GemmArCases, WordsToAllOfMoreRows) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "CDNA has words to all up to 16 rows alone";
  expect_pass("m=33,n=136,k=192,has_bias=1,exchange=one_shot_words", 8);
  expect_pass("m=20,n=136,k=528,splits=4,dtype=fp16,exchange=one_shot_words", 2);
  expect_pass("m=62,n=72,k=216,burst=3,delay=30,exchange=one_shot_words", 3, 5, 10);
}

// Few rows and many, ranks without rows, two types, splits, bursts.
TEST_P(GemmArCases, WordsByOwners) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "owners have boxes on CDNA";
  expect_pass("m=1,n=72,k=192,exchange=words", 8);
  expect_pass("m=17,n=72,k=192,has_bias=1,exchange=words", 8);
  expect_pass("m=20,n=136,k=528,splits=4,dtype=fp16,exchange=words", 2);
  expect_pass("m=64,n=72,k=216,burst=3,delay=30,exchange=words", 3, 5, 10);
  expect_pass("m=9,n=72,k=216,tile_columns=32,burst=3,delay=30,exchange=words", 3, 5, 10);
  expect_pass("m=65,n=200,k=192,has_bias=1,exchange=words", 8);
  expect_pass("m=150,n=72,k=216,max_sms=2,tile_columns=64,burst=3,delay=30,exchange=words", 3, 5, 10);
  expect_pass("m=300,n=136,k=528,splits=2,dtype=fp16,exchange=words", 2);
  expect_pass("m=40,n=40,k=72,burst=3,delay=40,exchange=words", 3, 25, 3);
  expect_pass("m=40,n=48,k=72,graph=1,exchange=words", 3, 2, 4);
}

TEST_P(GemmArCases, OwnersByBoxes) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "there is nothing else on CDNA";
  expect_pass("m=33,n=136,k=192,has_bias=1,exchange=boxes", 8);
  expect_pass("m=9,n=72,k=216,exchange=boxes", 3);
  expect_pass("m=130,n=72,k=48,max_sms=2,exchange=boxes", 2);
  expect_pass("m=258,n=80,k=272,splits=2,exchange=boxes", 2);
  expect_pass("m=40,n=40,k=72,burst=3,delay=40,exchange=boxes", 3, 25, 3);
  expect_pass("m=70,n=48,k=72,repeat=4,delay=20,exchange=boxes", 3);
}

TEST_P(GemmArCases, TilesOfPaddingAlone) { expect_pass("m=64,n=72,k=48", 3); }

TEST_P(GemmArCases, LateAndLostRanksAreNamed) {
  for (const char* settings : few_and_many()) {
    const CaseResult lost = run(settings, 3, 1, 1, "kill:2");
    EXPECT_FALSE(lost.outcome.pass) << settings;
    EXPECT_EQ(lost.outcome.status.code(), StatusCode::kDeadline) << lost.outcome.status.to_string();
  }
}

TEST_P(GemmArCases, RowsThatRanksDoNotDivide) {
  expect_pass("m=33,n=136,k=192,has_bias=1", 8);
  expect_pass("m=99,n=72,k=120", 5);
  expect_pass("m=130,n=72,k=48,max_sms=2", 2);
}

TEST_P(GemmArCases, TilesOfSeveralOwners) { expect_pass("m=258,n=80,k=1040,splits=2", 2); }

TEST_P(GemmArCases, ManySchedulesOfLateRanks) {
  expect_pass("m=8,n=40,k=72,burst=3,delay=40", 3, 25, 3);
  expect_pass("m=40,n=40,k=72,burst=3,delay=40", 3, 25, 3);
  expect_pass("m=70,n=40,k=72,burst=3,delay=40", 3, 25, 3);
}

TEST_P(GemmArCases, GraphsAndRepetitions) {
  expect_pass("m=40,n=48,k=72,graph=1", 3, 2, 4);
  expect_pass("m=9,n=48,k=72,repeat=4,delay=20", 3);
  expect_pass("m=70,n=48,k=72,repeat=4,delay=20", 3);
}

TEST_P(GemmArCases, OneRank) {
  expect_pass("m=5,n=40,k=72", 1);
  expect_pass("m=70,n=40,k=72", 1);
}

TEST_P(GemmArCases, FaultsAreNoticed) {
  for (const char* settings : few_and_many()) {
    EXPECT_FALSE(run(settings, 3, 1, 1, "drop_put:1").outcome.pass) << settings;
    EXPECT_FALSE(run(settings, 3, 1, 1, "mismatch:1").outcome.pass) << settings;
  }
}

TEST_P(GemmArCases, RefusesInWords) {
  const CaseResult result = run("m=4,n=40,k=20", 3);
  EXPECT_NE(result.outcome.detail.find("ParallelGemmDesc.k is 20"), std::string::npos) << result.outcome.detail;
}

INSTANTIATE_TEST_SUITE_P(Targets, GemmArCases, testing::ValuesIn(kEmulatedTargets), name_of_target);

}  // namespace
}  // namespace farwarp::harness
