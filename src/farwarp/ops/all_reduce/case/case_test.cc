// The all-reduce through the harness: every kernel, every edge, and the errors that a check must find.
#include <gtest/gtest.h>

#include "farwarp/harness/case_test_fixture.h"

namespace farwarp::harness {
namespace {

class AllReduceCases : public CaseTest {
 protected:
  AllReduceCases() : CaseTest("all-reduce", 11) {}
  CaseResult run(const std::string& settings, int ranks = 3, int schedules = 3, const std::string& fault = "") const {
    return CaseTest::run(settings, ranks, fault.empty() ? schedules : 1, 4, fault);
  }
  void expect_pass(const std::string& settings, int ranks = 3, int schedules = 3) const {
    CaseTest::expect_pass(settings, ranks, schedules, 4);
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, AllReduceCases, testing::ValuesIn(kEmulatedTargets), name_of_target);

TEST_P(AllReduceCases, EveryKernel) {
  for (const char* mode : {"one_shot", "two_shot"}) {
    for (const char* dtype : {"bf16", "fp16", "fp32"}) {
      for (const int ranks : {1, 2, 3, 4, 5, 8})
        expect_pass(std::string("elements=3001,mode=") + mode + ",dtype=" + dtype, ranks, 1);
    }
  }
}

TEST_P(AllReduceCases, AnyNumberOfElements) {
  for (const char* mode : {"one_shot", "two_shot"}) {
    for (const char* dtype : {"bf16", "fp32"}) {
      for (const int elements : {1, 2, 3, 7, 8, 9, 63, 64, 65, 191, 192, 193, 6143, 6144, 6145, 6152}) {
        for (const char* in_place : {"0", "1"})
          expect_pass(
              "elements=" + std::to_string(elements) + ",mode=" + mode + ",dtype=" + dtype + ",in_place=" + in_place, 3,
              1);
      }
    }
  }
}

TEST_P(AllReduceCases, FewBlocksTakeManyTurns) {
  expect_pass("elements=20000,mode=one_shot,max_sms=1,in_place=1");         // three vectors of a thread
  expect_pass("elements=40000,mode=two_shot,max_sms=1,in_place=1");         // 7 chunks of a part for 16 or 8 warps
  expect_pass("elements=120001,mode=two_shot,max_sms=1,in_place=1", 2, 2);  // 30 chunks
  expect_pass("elements=120001,mode=two_shot,max_sms=1,dtype=fp32", 3, 1);
}

TEST_P(AllReduceCases, NumbersThatAreNone) {
  for (const char* mode : {"one_shot", "two_shot"}) {
    for (const char* dtype : {"bf16", "fp16", "fp32"})
      expect_pass(std::string("elements=1001,inputs=special,mode=") + mode + ",dtype=" + dtype, 3, 2);
  }
}

/// Calls of both forms and of many sizes follow each other without a wait, on ranks that are late at random.
TEST_P(AllReduceCases, BurstsOfBothForms) {
  expect_pass("elements=2000,mode=one_shot,burst=6,delay=20", 3, 8);
  expect_pass("elements=9000,mode=two_shot,burst=6,delay=20", 3, 8);
  expect_pass("elements=9000,mode=two_shot,burst=4,delay=20,in_place=1", 4, 5);
  expect_pass("elements=9000,mode=two_shot,sizes=varied,burst=3,delay=20", 4, 5);
  expect_pass("elements=1500000,max_sms=8,sizes=varied,burst=2", 4, 1);  // auto: one-shot up to 1.67 MiB
}

TEST_P(AllReduceCases, FromGraphs) {
  for (const char* mode : {"one_shot", "two_shot"}) {
    expect_pass(std::string("elements=700,graph=1,burst=5,delay=20,mode=") + mode, 3, 5);
    expect_pass(std::string("elements=700,graph=1,burst=3,in_place=1,sizes=varied,mode=") + mode, 2, 5);
  }
}

TEST_P(AllReduceCases, ManySchedules) {
  expect_pass("elements=300,mode=one_shot", 4, 40);
  expect_pass("elements=300,mode=two_shot", 4, 40);
}

TEST_P(AllReduceCases, FaultsAreNoticed) {
  for (const char* mode : {"one_shot", "two_shot"}) {
    const std::string settings = std::string("elements=20000,mode=") + mode;
    const CaseResult dropped = run(settings, 3, 1, "drop_put:2"), killed = run(settings, 3, 1, "kill:1");
    EXPECT_EQ(dropped.outcome.status.code(), StatusCode::kDeadline) << dropped.outcome.status.to_string();
    EXPECT_NE(dropped.outcome.detail.find("for rank 0"), std::string::npos) << dropped.outcome.detail;
    EXPECT_NE(dropped.outcome.detail.find("the next call was right"), std::string::npos) << dropped.outcome.detail;
    EXPECT_FALSE(killed.outcome.pass);
    EXPECT_NE(killed.outcome.detail.find("for rank 1"), std::string::npos) << killed.outcome.detail;
    EXPECT_EQ(run(settings, 3, 1, "mismatch:1").outcome.status.code(), StatusCode::kMismatch);
    EXPECT_TRUE(run(settings, 3, 1, "delay:1:5").outcome.pass);
  }
}

TEST_P(AllReduceCases, RefusesByName) {
  const auto message = [this](const std::string& settings) { return run(settings, 2, 1).outcome.status.message(); };
  EXPECT_NE(
      message("elements=9000000,mode=one_shot").find("AllReduceDesc.max_elements is 9000000; allowed: 1 to 8388608"),
      std::string::npos)
      << message("elements=9000000,mode=one_shot");
}

}  // namespace
}  // namespace farwarp::harness
