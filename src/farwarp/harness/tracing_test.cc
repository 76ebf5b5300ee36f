// A traced run on the emulator: the same schedule as without, and what it must contain.
#include "farwarp/harness/tracing.h"

#include <gtest/gtest.h>

#include "farwarp/harness/runner.h"

namespace farwarp::harness {
namespace {

CaseResult run(const char* op, TargetKind target, std::uint64_t seed) {
  CaseRequest request = plain_requests(*find_operator(op)).front();
  request.options.target = target;
  request.options.ranks = 2;
  request.options.seed = seed;
  return run_case(request, nullptr, [](int) {});
}

class Tracing : public testing::TestWithParam<TargetKind> {};
INSTANTIATE_TEST_SUITE_P(Targets, Tracing, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Tracing, ChangesNoSchedule) {
  for (const char* op : {"moe-a2a", "gemm-rs", "flash-decode"}) {
    const CaseResult without = run(op, GetParam(), 5);
    TraceCollector collector;
    set_trace_collector(&collector);
    const CaseResult with = run(op, GetParam(), 5);
    set_trace_collector(nullptr);
    EXPECT_TRUE(without.outcome.pass) << without.outcome.detail;
    EXPECT_TRUE(with.outcome.pass) << with.outcome.detail;
    EXPECT_EQ(with.schedule_hashes, without.schedule_hashes) << op;
    EXPECT_GT(collector.take().size(), 20u) << op;
    EXPECT_EQ(collector.dropped, 0u);
  }
}

}  // namespace
}  // namespace farwarp::harness
