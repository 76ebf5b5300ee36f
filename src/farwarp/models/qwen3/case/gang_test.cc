// The gang dispatcher through the harness: XCDs with as many workers each, with uneven numbers, with one, with none;
// several ranks.
#include <gtest/gtest.h>

#include <cstdlib>

#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"

namespace farwarp::harness {
namespace {

class Qwen3Gang : public testing::Test {
 protected:
  void TearDown() override { unsetenv("FARWARP_EMU_XCDS"); }

  static void expect_pass(int xcds, const std::string& settings, int schedules = 1, int calls = 1, int ranks = 1) {
    setenv("FARWARP_EMU_XCDS", std::to_string(xcds).c_str(), 1);
    CaseRequest request;
    request.op = find_operator("qwen3");
    if (!add_settings(settings, request.params).ok()) ADD_FAILURE() << settings;
    request.options.target = TargetKind::kEmuGfx942;
    request.options.ranks = ranks;
    request.options.seed = 5;
    request.options.calls = calls;
    request.schedules = schedules;
    const CaseResult result = run_case(request, nullptr, [](int) {});
    EXPECT_TRUE(result.outcome.pass) << xcds << " XCDs, " << settings << ": " << result.outcome.detail << " "
                                     << result.outcome.status.to_string();
  }
};

TEST_F(Qwen3Gang, AllDispatchersGiveTheSameBits) {
  for (const int xcds : {1, 2, 4})
    expect_pass(xcds, "model=nano,batch=2,prompt=2,tokens=2,launches=1,max_sms=4,dispatcher=all");
}

TEST_F(Qwen3Gang, LaunchesContinueAndDispatchersTakeTurns) {
  expect_pass(2, "model=nano,batch=1,prompt=1,tokens=1,launches=2,max_sms=4,dispatcher=all", 1, 2);
}

TEST_F(Qwen3Gang, XcdsMayHaveUnevenNumbersOfWorkers) {
  expect_pass(2, "model=nano,batch=1,prompt=1,tokens=2,launches=2,max_sms=3,dispatcher=gang", 3);
  expect_pass(3, "model=nano,batch=1,prompt=1,tokens=1,launches=1,max_sms=5,dispatcher=gang", 2);
}

TEST_F(Qwen3Gang, XcdsMayHaveNoWorker) {
  expect_pass(8, "model=nano,batch=1,prompt=1,tokens=2,launches=1,max_sms=2,dispatcher=gang", 2);
}

TEST_F(Qwen3Gang, ManySchedules) {
  expect_pass(2, "model=nano,batch=1,prompt=1,tokens=1,launches=2,max_sms=4,dispatcher=gang", 6);
}

TEST_F(Qwen3Gang, EveryNumberOfColumns) {
  for (const char* batch : {"4", "8"})
    expect_pass(2, "model=nano,prompt=1,tokens=1,launches=1,max_sms=3,dispatcher=all,batch=" + std::string(batch));
}

TEST_F(Qwen3Gang, ContextsCrossPages) {
  expect_pass(2, "model=nano,batch=1,prompt=18,tokens=18,launches=1,max_sms=2,dispatcher=gang");
}

// More than eight sequences: vectors stream.

TEST_F(Qwen3Gang, AllDispatchersGiveTheSameBitsWithStreamedVectors) {
  for (const int xcds : {1, 2, 4})
    expect_pass(xcds, "model=nano,batch=9,prompt=2,tokens=2,launches=1,max_sms=4,dispatcher=all");
  expect_pass(2, "model=nano,batch=20,prompt=1,tokens=1,launches=1,max_sms=4,dispatcher=all");
}

TEST_F(Qwen3Gang, DispatchersTakeTurnsWithStreamedVectors) {
  expect_pass(2, "model=nano,batch=9,prompt=1,tokens=1,launches=2,max_sms=4,dispatcher=all", 1, 2);
}

TEST_F(Qwen3Gang, XcdsMayHaveUnevenNumbersOfWorkersOrNoneWithStreamedVectors) {
  expect_pass(2, "model=nano,batch=9,prompt=1,tokens=2,launches=1,max_sms=3,dispatcher=gang", 2);
  expect_pass(8, "model=nano,batch=9,prompt=1,tokens=1,launches=2,max_sms=2,dispatcher=gang");
}

TEST_F(Qwen3Gang, StreamedVectorsPassManySchedules) {
  expect_pass(2, "model=nano,batch=16,prompt=1,tokens=1,launches=2,max_sms=4,dispatcher=gang", 4);
}

/// Keys before the first token are zeros. The second of two splits begins, and heads are merged.
TEST_F(Qwen3Gang, ContextsCrossPagesAndSplitsWithStreamedVectors) {
  expect_pass(2, "model=nano,batch=9,prompt=1,tokens=2,launches=1,max_sms=4,dispatcher=all,zeros=15");
  expect_pass(2, "model=nano,batch=9,prompt=1,tokens=2,launches=1,max_sms=4,dispatcher=all,zeros=127,splits=2");
}

TEST_F(Qwen3Gang, RanksDecodeTogetherWithStreamedVectors) {
  expect_pass(2, "model=nano4,batch=9,prompt=1,tokens=1,launches=2,max_sms=4,dispatcher=all", 1, 1, 2);
}

TEST_F(Qwen3Gang, RanksDecodeTogether) {
  expect_pass(2, "model=nano4,batch=1,prompt=1,tokens=1,launches=2,max_sms=4,dispatcher=all", 1, 1, 2);
}

}  // namespace
}  // namespace farwarp::harness
