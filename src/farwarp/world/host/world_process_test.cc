// Worlds of processes, on every target that this machine has enough devices of. On the emulator these are smoke tests:
// no schedule of several processes can be replayed.
#include <gtest/gtest.h>

#include "farwarp/world/host/exchange_test_operator.h"
#include "farwarp/world/host/fork_ranks.h"
#include "farwarp/world/host/world.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 4;

class WorldProcessTest : public ::testing::TestWithParam<TargetKind> {
 protected:
  void SetUp() override {
    if (is_emulated(GetParam())) return;
    // Asked by a process of its own: a driver that this one has opened could not be used by its children.
    const std::vector<int> counted = fork_ranks(1, [](int) { ::_exit(Device::count(GetParam())); });
    const int devices = WIFEXITED(counted[0]) ? WEXITSTATUS(counted[0]) : 0;
    if (devices < kRanks) GTEST_SKIP() << "needs " << kRanks << " devices, this machine has " << devices;
  }

  Result<World> create(int rank) const {
    auto bootstrap = make_process_bootstrap(rank, kRanks, rendezvous_, 20s);
    if (!bootstrap.ok()) return bootstrap.status();
    WorldOptions options;
    options.target = GetParam();
    options.heap_bytes = 1 << 20;
    options.deadline = is_emulated(GetParam()) ? 500ms : 5s;  // which also bounds the start of a driver
    return World::create(*bootstrap, options);
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
  expect_forked(kRanks, [&](int rank) {
    auto world = create(rank);
    ASSERT_TRUE(world.ok()) << world.status().to_string();
    auto exchange = Exchange::create(*world);
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    for (std::uint32_t call = 0; call < 10; ++call) exchange->expect_works(10 * call);
    ASSERT_TRUE(world->bootstrap().barrier(10s).ok());
  });
}

TEST_P(WorldProcessTest, SubgroupsOfProcesses) {
  expect_forked(kRanks, [&](int rank) {
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
  expect_forked(kRanks, [&](int rank) {
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
  const std::vector<int> statuses = fork_ranks(kRanks, [&](int rank) {
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
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(statuses[rank], rank == 1 ? SIGKILL : 0) << "rank " << rank;
}

}  // namespace
}  // namespace farwarp
