#include <gtest/gtest.h>

#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/bootstrap_test_cases.h"
#include "farwarp/world/host/fork_ranks.h"
#include "farwarp/world/host/split_bootstrap.h"
#include "farwarp/world/host/stopped_rank.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

class ProcessBootstrapTest : public ::testing::TestWithParam<int> {
 protected:
  void on_all_ranks(const std::function<void(std::shared_ptr<Bootstrap>)>& body) {
    expect_forked(GetParam(), [&](int rank) {
      auto group = make_process_bootstrap(rank, GetParam(), rendezvous_, 20s);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      EXPECT_EQ((*group)->rank(), rank);
      EXPECT_FALSE((*group)->same_process());
      body(std::move(*group));
    });
  }

  const std::string rendezvous_ = fresh_rendezvous();
};

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessBootstrapTest, ::testing::Values(2, 3, 8), ::testing::PrintToStringParamName());

TEST_P(ProcessBootstrapTest, Gathers) {
  on_all_ranks([](auto group) { bootstrap_cases::gathers(*group); });
}
TEST_P(ProcessBootstrapTest, GathersMegabytes) {
  on_all_ranks([](auto group) { bootstrap_cases::gathers_megabytes(*group); });
}
TEST_P(ProcessBootstrapTest, PassesDescriptors) {
  on_all_ranks([](auto group) { bootstrap_cases::passes_descriptors(*group); });
}
TEST_P(ProcessBootstrapTest, NoticesOtherCalls) {
  on_all_ranks([](auto group) { bootstrap_cases::notices_other_calls(*group); });
}
TEST_P(ProcessBootstrapTest, EndsAtTheDeadline) {
  on_all_ranks([](auto group) { bootstrap_cases::ends_at_the_deadline(*group); });
}
TEST_P(ProcessBootstrapTest, NoticesWhoLeaves) {
  on_all_ranks([](auto group) { bootstrap_cases::notices_who_leaves(std::move(group)); });
}

TEST_P(ProcessBootstrapTest, NoticesWhoIsKilled) {
  const std::vector<int> statuses = fork_ranks(GetParam(), [&](int rank) {
    auto group = make_process_bootstrap(rank, GetParam(), rendezvous_, 20s);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    ASSERT_TRUE((*group)->barrier(10s).ok());
    if (rank == 1) ::kill(::getpid(), SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    const Status status = (*group)->barrier(20s);
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_TRUE(status.message().starts_with("rank 1 (process ")) << status.message();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  });
  for (int rank = 0; rank < GetParam(); ++rank) EXPECT_EQ(statuses[rank], rank == 1 ? SIGKILL : 0) << "rank " << rank;
}

TEST_P(ProcessBootstrapTest, NoticesWhoIsStopped) {
  StoppedRank stopped;
  expect_forked(GetParam(), [&](int rank) {
    auto group = make_process_bootstrap(rank, GetParam(), rendezvous_, 20s);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    (*group)->set_longest_silence(200ms);
    ASSERT_TRUE((*group)->barrier(10s).ok());
    if (rank == 1) {
      stopped.stop();
    } else {
      stopped.wait_until_stopped();
    }
    const auto start = std::chrono::steady_clock::now();
    const Status status = (*group)->barrier(20s);
    EXPECT_EQ(status.code(), StatusCode::kDeadline);
    EXPECT_TRUE(status.message().starts_with("rank 1 did not come to a collective call and gave no sign of life for"))
        << status.message();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1200ms);
    EXPECT_EQ((*group)->barrier(10s).message(), status.message()) << "broken for good";
    if (rank != 1) stopped.leave(GetParam() - 1, SIGCONT);
  });
}

// Some ranks compute meanwhile: they do not call this library and do not read what they are sent.
TEST_P(ProcessBootstrapTest, IsPatientWithWhoIsAlive) {
  on_all_ranks([](auto group) {
    group->set_longest_silence(100ms);
    for (int round = 0; round < 2; ++round) {
      if (group->rank() % 2 == round) std::this_thread::sleep_for(1200ms);
      const Status met = group->barrier(20s);
      ASSERT_TRUE(met.ok()) << met.to_string();
    }
    bootstrap_cases::gathers_megabytes(*group);
  });
}

TEST(ProcessBootstrap, OneRankNeedsNoRendezvous) {
  auto group = make_process_bootstrap(0, 1, "", 1s);
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  EXPECT_TRUE((*group)->barrier(1s).ok());
}

TEST(ProcessBootstrap, ChecksItsArguments) {
  EXPECT_EQ(make_process_bootstrap(0, 0, "x", 1s).status().message(), "size is 0; allowed: 1 or more");
  EXPECT_EQ(make_process_bootstrap(2, 2, "x", 1s).status().message(), "rank is 2; allowed: 0 to 1");
  EXPECT_EQ(make_process_bootstrap(0, 2, "", 1s).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(make_process_bootstrap(0, 2, std::string(200, 'x'), 1s).status().code(), StatusCode::kInvalidArgument);
}

TEST(ProcessBootstrap, NamesWhoNeverCame) {
  const std::string rendezvous = fresh_rendezvous();
  expect_forked(2, [&](int rank) {
    auto group = make_process_bootstrap(rank, 4, rendezvous, 300ms);
    EXPECT_EQ(group.status().code(), StatusCode::kDeadline);
    EXPECT_NE(group.status().message().find("ranks 2 and 3 did not come to rendezvous"), std::string::npos)
        << group.status().message();
  });
}

TEST(ProcessBootstrap, ASecondJobAtTheSameRendezvousIsToldSo) {
  const std::string rendezvous = fresh_rendezvous();
  expect_forked(2, [&](int rank) {
    auto group = make_process_bootstrap(rank, 2, rendezvous, 20s);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    auto second = make_process_bootstrap(rank, 2, rendezvous, 20s);
    EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
    EXPECT_NE(second.status().message().find("is in use"), std::string::npos) << second.status().message();
    EXPECT_TRUE((*group)->barrier(10s).ok()) << "the first job is not disturbed";
    group->reset();
    auto after = make_process_bootstrap(rank, 2, rendezvous, 20s);
    ASSERT_TRUE(after.ok()) << "free again: " << after.status().to_string();
    EXPECT_TRUE((*after)->barrier(10s).ok());
  });
}

TEST(ProcessBootstrap, RanksOfAnotherSizeAreToldSoAndDoNoHarm) {
  const std::string rendezvous = fresh_rendezvous();
  expect_forked(3, [&](int process) {
    if (process == 2) {  // believes that it is rank 2 of 4
      auto group = make_process_bootstrap(2, 4, rendezvous, 20s);
      EXPECT_EQ(group.status().code(), StatusCode::kMismatch);
      EXPECT_NE(group.status().message().find("WORLD_SIZE is 4 on rank 2 and 2 on rank"), std::string::npos)
          << group.status().message();
      return;
    }
    if (process == 1) std::this_thread::sleep_for(300ms);  // rank 0 is still listening when the stranger calls
    auto group = make_process_bootstrap(process, 2, rendezvous, 20s);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    EXPECT_TRUE((*group)->barrier(10s).ok());
  });
}

TEST(SplitBootstrap, ProcessesFormSubgroupsInTheParentsOrder) {
  const std::string rendezvous = fresh_rendezvous();
  expect_forked(5, [&](int rank) {
    auto parent = make_process_bootstrap(rank, 5, rendezvous, 20s);
    ASSERT_TRUE(parent.ok()) << parent.status().to_string();
    auto group = split_bootstrap(**parent, rank == 4 ? -1 : rank % 2, 10s);
    parent->reset();
    if (rank == 4) {
      EXPECT_EQ(group.status().code(), StatusCode::kUnavailable);
      return;
    }
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    EXPECT_EQ((*group)->size(), 2);
    EXPECT_EQ((*group)->rank(), rank / 2);
    auto all = (*group)->allgather(bootstrap_cases::bytes_of(std::to_string(rank)), 10s);
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    EXPECT_EQ((*all)[1], bootstrap_cases::bytes_of(std::to_string(rank % 2 + 2)));
  });
}

}  // namespace
}  // namespace farwarp
