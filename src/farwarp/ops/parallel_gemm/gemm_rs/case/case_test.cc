// gemm-rs through the harness: every kernel, all positions of an owner's rows in tiles, and faults that a check must
// notice.
#include <gtest/gtest.h>

#include "farwarp/harness/case_test_fixture.h"

namespace farwarp::harness {
namespace {

class GemmReduceScatterCases : public CaseTest {
 protected:
  GemmReduceScatterCases() : CaseTest("gemm-rs", 11) {}
  void expect_pass(const std::string& settings, int ranks = 4, int schedules = 1) const {
    CaseTest::expect_pass(settings, ranks, schedules);
  }
  /// Runs the case with each exchange.
  void expect_both_pass(const std::string& settings, int ranks = 4, int schedules = 1) const {
    expect_pass(settings, ranks, schedules);
    if (is_wgmma()) expect_pass(settings + ",exchange=boxes", ranks, schedules);
  }
  static bool is_wgmma() { return GetParam() == TargetKind::kEmuSm90; }
};

INSTANTIATE_TEST_SUITE_P(Targets, GemmReduceScatterCases, testing::ValuesIn(kEmulatedTargets), name_of_target);

TEST_P(GemmReduceScatterCases, EveryKernel) {
  for (const char* dtype : {"bf16", "fp16"}) {
    const std::string rest = std::string(",has_bias=1,dtype=") + dtype;
    if (!is_wgmma()) {
      expect_pass("m=130,n=264,k=272" + rest, 2);
      expect_pass("m=1026,n=264,k=48,max_sms=2" + rest, 2);
      continue;
    }
    for (const char* columns : {"64", "128", "192", "256"})
      expect_both_pass(std::string("m=130,n=264,k=272,tile_columns=") + columns + rest, 2);
    for (const char* columns : {"16", "32", "64"})
      expect_both_pass(std::string("m=34,n=264,k=272,tile_columns=") + columns + rest, 2);
    expect_pass("m=64,n=8200,k=16,max_sms=7" + rest, 2);
  }
}

// Boxes that the owner fetches: a row of tiles of each rank and more, columns that end within a tile, calls that
// overlap, graphs.
TEST_P(GemmReduceScatterCases, OwnersFetch) {
  if (!is_wgmma()) GTEST_SKIP() << "is for Hopper";
  for (const char* dtype : {"bf16", "fp16"}) {
    for (const char* columns : {"64", "128", "192", "256"}) {
      expect_pass(std::string("m=512,n=328,k=272,has_bias=1,max_sms=3,burst=2,exchange=fetch,tile_columns=") + columns +
                      ",dtype=" + dtype,
                  2, 3);
    }
  }
  expect_pass("m=256,n=8,k=16,exchange=fetch", 2, 3);
  expect_pass("m=4352,n=72,k=16,max_sms=3,tile_columns=64,exchange=fetch", 2);  // groups of 16 rows of tiles mix
  expect_pass("m=768,n=200,k=80,max_sms=2,burst=3,delay=40,repeat=3,exchange=fetch", 2, 10);
  expect_pass("m=256,n=136,k=80,graph=1,burst=2,repeat=3,delay=20,exchange=fetch", 2, 5);
}

TEST_P(GemmReduceScatterCases, OwnersFetchOnManySchedules) {
  if (!is_wgmma()) GTEST_SKIP() << "is for Hopper";
  expect_pass("m=256,n=136,k=48,max_sms=1,burst=3,delay=10,exchange=fetch,tile_columns=64", 2, 40);
}

// The parts are stored before the flag and fetched after it: a band that is flagged and not stored gives wrong sums. A
// rank that is gone is named.
TEST_P(GemmReduceScatterCases, FetchedPartsThatAreMissing) {
  if (!is_wgmma()) GTEST_SKIP() << "is for Hopper";
  const std::string settings = "m=256,n=136,k=512,max_sms=2,exchange=fetch";
  for (const char* fault : {"drop_put:1", "drop_put:4"}) {  // of the peer's rows, of own rows
    const CaseResult dropped = run(settings + ",tile_columns=128,inputs=exact", 2, 1, 2, fault);
    EXPECT_FALSE(dropped.outcome.pass) << fault;
    EXPECT_TRUE(dropped.outcome.status.ok()) << dropped.outcome.status.to_string();
  }
  CaseRequest late = request_of(tested(settings, 2, 1, 2, "delay:1:400"));
  late.options.deadline = std::chrono::milliseconds(100);
  const CaseResult recovered = run_case(late);
  EXPECT_FALSE(recovered.outcome.pass);
  EXPECT_NE(recovered.outcome.detail.find("after recover() the next call was right"), std::string::npos)
      << recovered.outcome.detail;
  CaseRequest asked = request_of(tested(settings, 2, 1, 2, "kill:1"));
  asked.options.deadline = std::chrono::milliseconds(200);
  const CaseResult killed = run_case(asked);
  EXPECT_EQ(exit_code(killed), 4) << killed.outcome.detail;
  EXPECT_NE(killed.outcome.detail.find("'a peer's readiness' for rank 1"), std::string::npos) << killed.outcome.detail;
}

TEST_P(GemmReduceScatterCases, EveryNumberOfRanks) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    expect_both_pass("m=" + std::to_string(ranks) + ",n=40,k=" + std::to_string(24 * ranks), ranks);
    expect_both_pass("m=" + std::to_string(24 * ranks) + ",n=72,k=" + std::to_string(8 * ranks), ranks);
  }
}

// 8, 24 and 72 rows of each of 8 owners: tiles with many owners, and owners with parts of tiles.
TEST_P(GemmReduceScatterCases, OwnersOfPartsOfTiles) {
  for (const char* m : {"64", "192", "576"}) {
    expect_both_pass(std::string("m=") + m + ",n=40,k=192,has_bias=1", 8);
    if (!is_wgmma()) continue;  // the other target takes a minute
    expect_pass(std::string("m=") + m + ",n=8,k=64", 8);
    expect_pass(std::string("m=") + m + ",n=360,k=64", 8);
  }
  expect_pass("m=64,n=40,k=2880", 8);
}

TEST_P(GemmReduceScatterCases, OwnersOfWholeTiles) {
  expect_both_pass("m=512,n=72,k=64,tile_columns=0,max_sms=3", 2);
  expect_both_pass("m=1024,n=72,k=32,max_sms=2", 4);
}

TEST_P(GemmReduceScatterCases, Splits) {
  expect_pass(is_wgmma() ? "m=40,n=136,k=1600,splits=4,has_bias=1" : "m=40,n=136,k=2400,splits=3,has_bias=1", 4,
              is_wgmma() ? 10 : 2);
  if (is_wgmma()) expect_pass("m=6,n=72,k=528,splits=2,has_bias=1,burst=3,delay=20", 3, 20);
  expect_both_pass("m=160,n=72,k=1056,splits=2,max_sms=2", 4, is_wgmma() ? 5 : 2);
}

TEST_P(GemmReduceScatterCases, CallsBackToBackAndGraphs) {
  expect_both_pass("m=72,n=40,k=128,burst=2,repeat=3,delay=40", 4, 5);
  expect_both_pass("m=24,n=40,k=120,graph=1,burst=2,repeat=3,delay=20", 3, 5);
}

TEST_P(GemmReduceScatterCases, ManySchedules) {
  expect_both_pass("m=72,n=72,k=48,max_sms=1,burst=2,delay=10", 3, is_wgmma() ? 40 : 10);
  expect_both_pass("m=6,n=72,k=48,max_sms=2,burst=2", 3, is_wgmma() ? 40 : 10);
}

// Each buffer of the inbox is used several times, with different inputs.
TEST_P(GemmReduceScatterCases, ManyCallsInARow) {
  if (!is_wgmma()) GTEST_SKIP() << "has no words";
  for (const char* settings : {"m=81,n=136,k=72,max_sms=2,burst=3,delay=30", "m=9,n=136,k=72,burst=3,delay=30"}) {
    CaseTest::expect_pass(settings, 3, 5, 10);
  }
}

// n is a few columns more than a multiple of 64, and K is one step.
TEST_P(GemmReduceScatterCases, Tails) {
  if (!is_wgmma()) GTEST_SKIP() << "the same kernels as elsewhere";
  for (const char* n : {"8", "72", "136"}) {
    for (const char* k : {"24", "72", "1080"}) expect_pass(std::string("m=3,has_bias=1,n=") + n + ",k=" + k, 3, 3);
    expect_pass(std::string("m=69,k=24,tile_columns=128,n=") + n, 3, 3);
  }
}

// A tile that is flagged and not sent: the owner adds up what its inbox held.
TEST_P(GemmReduceScatterCases, NoticesATileThatIsNotSent) {
  for (const char* settings : {"m=160,n=136,k=512,max_sms=2", "m=16,n=264,k=512"}) {
    for (const char* inputs : {",inputs=exact", ",inputs=uniform"}) {
      const CaseResult result =
          run(std::string(settings) + inputs + (is_wgmma() ? ",exchange=boxes" : ""), 4, 1, 2, "drop_put:1");
      EXPECT_FALSE(result.outcome.pass) << settings << inputs;
      EXPECT_TRUE(result.outcome.status.ok()) << result.outcome.status.to_string();
    }
  }
}

TEST_P(GemmReduceScatterCases, MissesWordsThatAreNotSent) {
  if (!is_wgmma()) GTEST_SKIP() << "has no words";
  for (const char* settings : {"m=16,n=264,k=512", "m=16,n=264,k=512,splits=2", "m=160,n=136,k=512,max_sms=2"}) {
    for (const auto& [fault, names] : {std::pair("drop_put:2", "rank 0"), std::pair("kill:2", "rank 2")}) {
      CaseRequest asked = request_of(tested(settings, 4, 1, 2, fault));
      asked.options.deadline = std::chrono::milliseconds(200);
      const CaseResult result = run_case(asked);
      EXPECT_EQ(exit_code(result), 4) << result.outcome.detail;
      const std::string expected = std::string("'a peer's partial sums' for ") + names;
      EXPECT_NE(result.outcome.detail.find(expected), std::string::npos) << result.outcome.detail;
    }
  }
}

TEST_P(GemmReduceScatterCases, SaysThatReadinessIsMissing) {
  CaseRequest asked =
      request_of(tested(is_wgmma() ? "m=72,n=40,k=64,exchange=boxes" : "m=72,n=40,k=64", 4, 1, 2, "kill:2"));
  asked.options.deadline = std::chrono::milliseconds(200);
  const CaseResult result = run_case(asked);
  EXPECT_EQ(exit_code(result), 4) << result.outcome.detail;
  EXPECT_NE(result.outcome.detail.find("a peer's readiness"), std::string::npos) << result.outcome.detail;
}

TEST_P(GemmReduceScatterCases, RecoversFromADelayBeyondTheDeadline) {
  for (const std::string settings : {"m=16,n=40,k=64", "m=72,n=40,k=64", "m=72,n=40,k=64,exchange=boxes"}) {
    if (!is_wgmma() && settings.ends_with("boxes")) continue;
    CaseRequest asked = request_of(tested(settings, 4, 1, 2, "delay:1:400"));
    asked.options.deadline = std::chrono::milliseconds(100);
    const CaseResult result = run_case(asked);
    EXPECT_FALSE(result.outcome.pass);
    EXPECT_NE(result.outcome.detail.find("after recover() the next call was right"), std::string::npos)
        << result.outcome.detail;
  }
}

}  // namespace
}  // namespace farwarp::harness
