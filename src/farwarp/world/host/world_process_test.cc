// Worlds of processes on the emulator: smoke tests, as no schedule of several processes can be replayed.
#include <gtest/gtest.h>

#include "farwarp/world/host/exchange_test_operator.h"
#include "farwarp/world/host/fork_ranks.h"
#include "farwarp/world/host/world.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

class WorldProcessTest : public ::testing::TestWithParam<TargetKind> {
 protected:
  Result<World> create(int rank, int size) const {
    auto bootstrap = make_process_bootstrap(rank, size, rendezvous_, 20s);
    if (!bootstrap.ok()) return bootstrap.status();
    WorldOptions options;
    options.target = GetParam();
    options.heap_bytes = 1 << 20;
    options.deadline = 500ms;
    return World::create(*bootstrap, options);
  }

  const std::string rendezvous_ = fresh_rendezvous();
};

std::string name_of_target(const ::testing::TestParamInfo<TargetKind>& info) {
  return std::string(name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(Emulated, WorldProcessTest, ::testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         name_of_target);

TEST_P(WorldProcessTest, ExchangesOverMemfds) {
  expect_forked(4, [&](int rank) {
    auto world = create(rank, 4);
    ASSERT_TRUE(world.ok()) << world.status().to_string();
    auto exchange = Exchange::create(*world);
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    for (std::uint32_t call = 0; call < 10; ++call) exchange->expect_works(10 * call);
    ASSERT_TRUE(world->bootstrap().barrier(10s).ok());
  });
}

TEST_P(WorldProcessTest, SubgroupsOfProcesses) {
  expect_forked(4, [&](int rank) {
    auto world = create(rank, 4);
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
  expect_forked(3, [&](int rank) {
    auto world = create(rank, 3);
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
  const std::vector<int> statuses = fork_ranks(3, [&](int rank) {
    auto world = create(rank, 3);
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
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_EQ(statuses[1], SIGKILL);
  EXPECT_EQ(statuses[2], 0);
}

}  // namespace
}  // namespace farwarp
