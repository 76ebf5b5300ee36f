// On the emulator: ranks' threads that wait for each other outside the library.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>
#include <mutex>
#include <thread>

#include "farwarp/base/host_activity.h"
#include "farwarp/world/host/exchange_test_operator.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

class HostThreadsTest : public WorldTestBase {
 protected:
  static WorldOptions patience(std::chrono::milliseconds deadline) {
    WorldOptions changed = options();
    changed.deadline = deadline;
    return changed;
  }
  /// Three ranks with an operator each.
  static void on_exchanges(std::chrono::milliseconds deadline, const std::function<void(World&, Exchange&)>& body) {
    on_worlds(3, patience(deadline), [&](World& world) {
      auto exchange = Exchange::create(world);
      ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
      body(world, *exchange);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, HostThreadsTest, ::testing::ValuesIn(kAllTargets), name_of_target);

TEST_P(HostThreadsTest, OneWaitsInTheLibraryTheOthersInABarrier) {
  std::barrier<> all(3);
  on_exchanges(500ms, [&](World& world, Exchange& exchange) {
    for (int call = 0; call < 3; ++call) {
      EXPECT_TRUE(exchange.launch(static_cast<std::uint32_t>(10 * call + world.rank())).ok());
      if (world.rank() == call) exchange.expect_arrived(static_cast<std::uint32_t>(10 * call));
      all.arrive_and_wait();
      if (world.rank() != call) exchange.expect_arrived(static_cast<std::uint32_t>(10 * call));
    }
  });
}

TEST_P(HostThreadsTest, OneWaitsInTheLibraryTheOthersForItsMutex) {
  std::mutex turn;
  on_exchanges(500ms, [&](World& world, Exchange& exchange) {
    for (std::uint32_t call = 0; call < 2; ++call) {
      EXPECT_TRUE(exchange.launch(10 * call + static_cast<std::uint32_t>(world.rank())).ok());
      {
        std::lock_guard lock(turn);
        exchange.expect_arrived(10 * call);
      }
      // Without it a thread could take the mutex again for the next call before the others have had it.
      EXPECT_TRUE(world.bootstrap().barrier(10s).ok());
    }
  });
}

TEST_P(HostThreadsTest, OneWaitsInTheLibraryTheOthersSpin) {
  if (is_real()) GTEST_SKIP() << "a device runs whatever the host does";
  std::atomic<bool> arrived = false;
  on_exchanges(10s, [&](World& world, Exchange& exchange) {
    EXPECT_TRUE(exchange.launch(static_cast<std::uint32_t>(world.rank())).ok());
    if (world.rank() == 0) {
      EXPECT_TRUE(world.device().synchronize(exchange.stream(), 1'000'000).ok()) << "at least 2 s, as documented";
      arrived = true;
    }
    while (!arrived) std::this_thread::yield();
    exchange.expect_arrived(0);
  });
}

// A declared spin costs no time; undeclared, this wait would take a minute.
TEST_P(HostThreadsTest, OneWaitsInTheLibraryTheOthersSpinDeclared) {
  std::atomic<bool> arrived = false;
  const auto start = std::chrono::steady_clock::now();
  on_exchanges(10s, [&](World& world, Exchange& exchange) {
    EXPECT_TRUE(exchange.launch(static_cast<std::uint32_t>(world.rank())).ok());
    if (world.rank() == 0) {
      EXPECT_TRUE(world.device().synchronize(exchange.stream(), 60'000'000'000).ok());
      arrived = true;
    } else {
      HostBlockedScope blocked;
      while (!arrived) std::this_thread::yield();
    }
    exchange.expect_arrived(0);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

// Kernels wait in the host's time for what a sleeping thread has yet to enqueue, so the call's virtual deadline does
// not pass.
TEST_P(HostThreadsTest, ASleepingThreadMayStillEnqueue) {
  on_exchanges(10s, [](World& world, Exchange& exchange) {
    if (world.rank() == 1) std::this_thread::sleep_for(150ms);
    exchange.expect_works(3);
  });
}

TEST_P(HostThreadsTest, AThreadThatEnqueuesNothingIsNamedAtTheDeadline) {
  std::promise<void> over;
  std::atomic<bool> told = false;
  std::shared_future<void> when_over = over.get_future().share();
  on_exchanges(300ms, [&](World& world, Exchange& exchange) {
    if (world.rank() == 1) return when_over.wait();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(exchange.launch(1).ok());
    EXPECT_TRUE(exchange.synchronize().ok());
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
    if (!told.exchange(true)) over.set_value();
    const Status status = world.status();
    if (status.code() == StatusCode::kAborted) return;  // the other rank's deadline was first
    EXPECT_EQ(status.code(), StatusCode::kDeadline) << status.to_string();
    EXPECT_TRUE(contains(status.message(), "for rank 1")) << status.to_string();
    if (!is_real()) {
      EXPECT_TRUE(contains(status.message(), "these host threads did not wait in the library: rank 1 (thread "))
          << status.to_string();
    }
  });
}

// Threads that the program starts itself: their first collective call registers them.
TEST_P(HostThreadsTest, ThreadsThatNobodyHasRegistered) {
  if (!Device::has_kernels(GetParam()) || is_real()) GTEST_SKIP() << "a device does not ask for threads";
  auto bootstraps = make_thread_bootstraps(2);
  std::vector<std::thread> threads;
  for (auto& bootstrap : bootstraps) {
    threads.emplace_back([&bootstrap] {
      auto world = World::create(std::move(bootstrap), options());
      ASSERT_TRUE(world.ok()) << world.status().to_string();
      auto exchange = Exchange::create(*world);
      ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
      if (world->rank() == 1) std::this_thread::sleep_for(100ms);
      exchange->expect_works(3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(active_host_threads(), 0) << "they have ended";
}

TEST(HostThreads, ScopesInsideOfScopesDoNothing) {
  const int before = active_host_threads();
  {
    HostThreadScope outer("outer"), inner("inner");
    EXPECT_EQ(active_host_threads(), before + 1);
    EXPECT_EQ(list_active_host_threads().back().name, "outer");
    {
      HostBlockedScope blocked;
      EXPECT_EQ(active_host_threads(), before);
      {
        HostBlockedScope again;
        EXPECT_EQ(active_host_threads(), before);
      }
      EXPECT_EQ(active_host_threads(), before) << "still blocked";
    }
    EXPECT_EQ(active_host_threads(), before + 1);
  }
  EXPECT_EQ(active_host_threads(), before);
}

}  // namespace
}  // namespace farwarp
