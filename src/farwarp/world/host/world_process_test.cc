// Worlds of processes, on every target that this machine has enough devices of. On the emulator these are smoke tests:
// no schedule of several processes can be replayed.
#include <gtest/gtest.h>

#include "farwarp/world/host/exchange_test_operator.h"
#include "farwarp/world/host/fork_ranks.h"
#include "farwarp/world/host/stopped_rank.h"
#include "farwarp/world/host/world.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

/// Two devices are enough; more ranks cost the emulator nothing.
int ranks_on(TargetKind target) { return is_emulated(target) ? 4 : 2; }

/// A child process counts them: if this process opened the driver, its other children could not use it.
int count_devices(TargetKind target) {
  if (is_emulated(target)) return ranks_on(target);
  const std::vector<int> counted = fork_ranks(1, [&](int) { ::_exit(Device::count(target)); });
  return WIFEXITED(counted[0]) ? WEXITSTATUS(counted[0]) : 0;
}

/// Also bounds the start of a driver.
std::chrono::milliseconds deadline_on(TargetKind target) { return is_emulated(target) ? 500ms : 5s; }

Result<World> create_world(std::shared_ptr<Bootstrap> bootstrap, TargetKind target) {
  WorldOptions options;
  options.target = target;
  options.heap_bytes = 1 << 20;
  options.deadline = deadline_on(target);
  return World::create(std::move(bootstrap), options);
}

class WorldProcessTest : public ::testing::TestWithParam<TargetKind> {
 protected:
  void SetUp() override {
    if (const int devices = count_devices(GetParam()); devices < ranks())
      GTEST_SKIP() << "needs " << ranks() << " devices, this machine has " << devices;
  }
  static int ranks() { return ranks_on(GetParam()); }

  Result<World> create(int rank) const {
    auto bootstrap = make_process_bootstrap(rank, ranks(), rendezvous_, 20s);
    if (!bootstrap.ok()) return bootstrap.status();
    return create_world(*bootstrap, GetParam());
  }

  const std::string rendezvous_ = fresh_rendezvous();
};

std::string name_of_target(const ::testing::TestParamInfo<TargetKind>& info) {
  return std::string(name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(Targets, WorldProcessTest,
                         ::testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942, TargetKind::kCuda,
                                           TargetKind::kHip),
                         name_of_target);

TEST_P(WorldProcessTest, Exchanges) {
  expect_forked(ranks(), [&](int rank) {
    auto world = create(rank);
    ASSERT_TRUE(world.ok()) << world.status().to_string();
    auto exchange = Exchange::create(*world);
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    for (std::uint32_t call = 0; call < 10; ++call) exchange->expect_works(10 * call);
    ASSERT_TRUE(world->bootstrap().barrier(10s).ok());
  });
}

TEST_P(WorldProcessTest, SubgroupsOfProcesses) {
  expect_forked(ranks(), [&](int rank) {
    auto world = create(rank);
    ASSERT_TRUE(world.ok()) << world.status().to_string();
    auto group = world->split(rank % 2, 1 << 16);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    auto exchange = Exchange::create(*group);
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    for (std::uint32_t call = 0; call < 3; ++call) exchange->expect_works(10 * call);
    ASSERT_TRUE(world->bootstrap().barrier(10s).ok());
  });
}

TEST_P(WorldProcessTest, ALateRankIsSurvived) {
  expect_forked(ranks(), [&](int rank) {
    auto world = create(rank);
    ASSERT_TRUE(world.ok()) << world.status().to_string();
    auto exchange = Exchange::create(*world);
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    if (rank != 1) {
      ASSERT_TRUE(exchange->launch(1).ok());
      EXPECT_TRUE(exchange->synchronize().ok());
      EXPECT_FALSE(world->status().ok());
    }
    const Status recovered = world->recover({exchange->stream()});
    ASSERT_TRUE(recovered.ok()) << recovered.to_string();
    exchange->expect_works(5);
    ASSERT_TRUE(world->bootstrap().barrier(10s).ok());
  });
}

TEST_P(WorldProcessTest, AKilledRankEndsTheWorldNotTheOthers) {
  const std::vector<int> statuses = fork_ranks(ranks(), [&](int rank) {
    auto world = create(rank);
    ASSERT_TRUE(world.ok()) << world.status().to_string();
    auto exchange = Exchange::create(*world);
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    exchange->expect_works(1);
    ASSERT_TRUE(world->bootstrap().barrier(10s).ok());
    if (rank == 1) ::kill(::getpid(), SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(exchange->launch(1).ok());
    EXPECT_TRUE(exchange->synchronize().ok()) << "the kernel gives up by itself";
    const StatusCode code = world->status().code();
    EXPECT_TRUE(code == StatusCode::kDeadline || code == StatusCode::kAborted) << world->status().to_string();
    const Status recovered = world->recover({exchange->stream()});
    EXPECT_EQ(recovered.code(), StatusCode::kPeerLost);
    EXPECT_NE(recovered.message().find("rank 1 (process "), std::string::npos) << recovered.message();
    EXPECT_EQ(world->status().code(), StatusCode::kPeerLost);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  });
  for (int rank = 0; rank < ranks(); ++rank) EXPECT_EQ(statuses[rank], rank == 1 ? SIGKILL : 0) << "rank " << rank;
}

// ---- a rank that is stopped before a collective call

enum class Call : std::uint8_t { kCreate, kAllocate, kFree, kOpenOperator, kCloseOperator, kRecover, kSplit };

class StoppedRankTest : public ::testing::TestWithParam<std::tuple<TargetKind, Call>> {
 protected:
  static TargetKind target() { return std::get<0>(GetParam()); }

  /// Makes the Worlds that the call needs, then the call, after rank 1 has been stopped. Rank 1 is stopped inside this
  /// function.
  Status call_without_rank_1(std::shared_ptr<Bootstrap> bootstrap, std::chrono::steady_clock::time_point& start) {
    const auto others_go_on = [&] {
      if (bootstrap->rank() == 1) stopped_.stop();
      stopped_.wait_until_stopped();
      start = std::chrono::steady_clock::now();
    };
    const Call call = std::get<1>(GetParam());
    if (call == Call::kCreate) {
      others_go_on();
      return create_world(bootstrap, target()).status();
    }
    auto world = create_world(bootstrap, target());
    if (!world.ok()) return world.status();
    const auto buffer = world->allocate(1024);
    auto exchange = Exchange::create(*world);
    if (!buffer.ok() || !exchange.ok()) return internal_error("could not be set up");
    exchange->expect_works(1);
    others_go_on();
    switch (call) {
      case Call::kAllocate: return world->allocate(4096).status();
      case Call::kFree: return world->free(*buffer);
      case Call::kOpenOperator: return world->open_operator("another", {}, 1).status();
      case Call::kCloseOperator: return exchange->close();
      case Call::kRecover: return world->recover({exchange->stream()});
      default: return world->split(bootstrap->rank() % 2, 1 << 16).status();
    }
  }

  StoppedRank stopped_;
};

TEST_P(StoppedRankTest, IsNamedWithinTheDeadlineAndASecond) {
  const int ranks = ranks_on(target());
  if (const int devices = count_devices(target()); devices < ranks)
    GTEST_SKIP() << "needs " << ranks << " devices, this machine has " << devices;
  const std::string rendezvous = fresh_rendezvous();
  const std::vector<int> statuses = fork_ranks(ranks, [&](int rank) {
    auto bootstrap = make_process_bootstrap(rank, ranks, rendezvous, 20s);
    ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
    std::chrono::steady_clock::time_point start;
    const Status status = call_without_rank_1(*bootstrap, start);
    const auto waited = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(status.code() == StatusCode::kDeadline || status.code() == StatusCode::kPeerLost) << status.to_string();
    EXPECT_NE(status.message().find("rank 1 "), std::string::npos) << status.message();
    EXPECT_LT(waited, deadline_on(target()) + 1s);
    stopped_.leave(ranks - 1, SIGKILL);
  });
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(statuses[rank], rank == 1 ? SIGKILL : 0) << "rank " << rank;
}

std::string name_of_call(const ::testing::TestParamInfo<std::tuple<TargetKind, Call>>& info) {
  constexpr const char* kNames[] = {"Create", "Allocate", "Free", "OpenOperator", "CloseOperator", "Recover", "Split"};
  return std::string(name_of(std::get<0>(info.param))) + "_" + kNames[static_cast<int>(std::get<1>(info.param))];
}
INSTANTIATE_TEST_SUITE_P(
    Calls, StoppedRankTest,
    ::testing::Combine(::testing::Values(TargetKind::kEmuSm90, TargetKind::kCuda, TargetKind::kHip),
                       ::testing::Values(Call::kCreate, Call::kAllocate, Call::kFree, Call::kOpenOperator,
                                         Call::kCloseOperator, Call::kRecover, Call::kSplit)),
    name_of_call);

}  // namespace
}  // namespace farwarp
