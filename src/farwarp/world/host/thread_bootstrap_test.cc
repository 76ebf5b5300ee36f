#include <gtest/gtest.h>

#include <atomic>

#include "farwarp/base/host_activity.h"
#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/bootstrap_test_cases.h"
#include "farwarp/world/host/split_bootstrap.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

class ThreadBootstrapTest : public ::testing::TestWithParam<int> {
 protected:
  static void on_all_ranks(const std::function<void(std::shared_ptr<Bootstrap>)>& body) {
    const Status status = run_ranks(GetParam(), [&](std::shared_ptr<Bootstrap> group) {
      body(std::move(group));
      return Status{};
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadBootstrapTest, ::testing::Values(2, 3, 8), ::testing::PrintToStringParamName());

TEST_P(ThreadBootstrapTest, Gathers) {
  on_all_ranks([](auto group) { bootstrap_cases::gathers(*group); });
}
TEST_P(ThreadBootstrapTest, GathersMegabytes) {
  on_all_ranks([](auto group) { bootstrap_cases::gathers_megabytes(*group); });
}
TEST_P(ThreadBootstrapTest, PassesDescriptors) {
  on_all_ranks([](auto group) { bootstrap_cases::passes_descriptors(*group); });
}
TEST_P(ThreadBootstrapTest, NoticesOtherCalls) {
  on_all_ranks([](auto group) { bootstrap_cases::notices_other_calls(*group); });
}
TEST_P(ThreadBootstrapTest, EndsAtTheDeadline) {
  on_all_ranks([](auto group) { bootstrap_cases::ends_at_the_deadline(*group); });
}
TEST_P(ThreadBootstrapTest, NoticesWhoLeaves) {
  on_all_ranks([](auto group) { bootstrap_cases::notices_who_leaves(std::move(group)); });
}

TEST(ThreadBootstrap, OneRankIsAGroup) {
  const Status status = run_ranks(1, [](std::shared_ptr<Bootstrap> group) {
    EXPECT_TRUE(group->same_process());
    return group->barrier(1s);
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(RunRanks, ReturnsTheCauseRatherThanItsConsequences) {
  const Status status = run_ranks(3, [](std::shared_ptr<Bootstrap> group) {
    if (group->rank() == 2) return Status{StatusCode::kInternal, "the cause"};
    return group->barrier(10s);
  });
  EXPECT_EQ(status.message(), "the cause");
}

// The emulator relies on this: waiting ranks count as active from the last rank's arrival on, even before they run
// again.
TEST(ThreadBootstrap, WaitersCountAsActiveBeforeTheLastArrivalReturns) {
  std::atomic<int> times_idle = 0;
  set_host_idle_listener([&] { ++times_idle; });
  const Status status = run_ranks(4, [&](std::shared_ptr<Bootstrap> group) {
    for (int round = 0; round < 200; ++round) {
      if (Status met = group->barrier(10s); !met.ok()) return met;
      // After a barrier all four are active, whether the operating system has run them or not.
      EXPECT_GE(active_host_threads(), 1);
      EXPECT_EQ(times_idle, 0);
    }
    if (Status met = group->barrier(10s); !met.ok()) return met;
    return Status{};
  });
  set_host_idle_listener({});
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(times_idle, 1) << "only when the last thread ended";
}

TEST(SplitBootstrap, ThreadsFormSubgroupsInTheParentsOrder) {
  const Status status = run_ranks(5, [](std::shared_ptr<Bootstrap> parent) {
    const int colour = parent->rank() == 4 ? -1 : parent->rank() % 2;  // {0, 2}, {1, 3}, and 4 in none
    auto group = split_bootstrap(*parent, colour, 10s);
    const int parent_rank = parent->rank();
    parent.reset();  // the subgroup does not need it
    if (parent_rank == 4) {
      EXPECT_EQ(group.status().code(), StatusCode::kUnavailable);
      return Status{};
    }
    if (!group.ok()) return group.status();
    EXPECT_EQ((*group)->size(), 2);
    EXPECT_EQ((*group)->rank(), parent_rank / 2);
    auto all = (*group)->allgather(bootstrap_cases::bytes_of(std::to_string(parent_rank)), 10s);
    if (!all.ok()) return all.status();
    EXPECT_EQ((*all)[0], bootstrap_cases::bytes_of(std::to_string(colour)));
    EXPECT_EQ((*all)[1], bootstrap_cases::bytes_of(std::to_string(colour + 2)));
    return Status{};
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace farwarp
