// Worlds that are destroyed with a call in flight, Worlds that were moved from, and creations that fail on one rank
// alone.
#include <gtest/gtest.h>

#include <optional>

#include "farwarp/world/host/device_barrier.h"
#include "farwarp/world/host/exchange_test_operator.h"
#include "farwarp/world/host/faulty_test_device.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

class WorldLifetimeTest : public WorldTestBase {
 protected:
  /// Destroys a World of two ranks while calls of `callers` of them are in flight, then makes another.
  static void leave_in_flight(int callers) {
    on_ranks(2, [&](std::shared_ptr<Bootstrap> bootstrap) {
      WorldOptions impatient = options();
      impatient.deadline = 500ms;
      const auto device = Device::open(GetParam(), bootstrap->rank());  // outlives the streams, as a program's does
      ASSERT_TRUE(device.ok()) << device.status().to_string();
      Stream stream;
      for (int round = 0; round < 4; ++round) {
        auto world = World::create(bootstrap, impatient);
        ASSERT_TRUE(world.ok()) << world.status().to_string();
        if (round > 0) world->device().destroy_stream(stream);
        auto exchange = Exchange::create(*world);
        ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
        exchange->expect_works(static_cast<std::uint32_t>(10 * round));
        for (int call = 0; call < 3 && world->rank() < callers; ++call) ASSERT_TRUE(exchange->launch(7).ok());
        stream = exchange->abandon();
      }
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, WorldLifetimeTest, ::testing::ValuesIn(kAllTargets), name_of_target);

TEST_P(WorldLifetimeTest, ACallInFlightDoesNotTouchTheNextWorld) { leave_in_flight(2); }

// The call waits for its peer until its deadline.
TEST_P(WorldLifetimeTest, ACallInFlightWithoutItsPeerDoesNotTouchTheNextWorld) { leave_in_flight(1); }

TEST_P(WorldLifetimeTest, MemoryThatMayBeInUseIsKept) {
  for (const bool drains : {true, false}) {
    on_ranks(1, [&](std::shared_ptr<Bootstrap> bootstrap) {
      auto real = Device::open(GetParam(), 0);
      ASSERT_TRUE(real.ok());
      const auto device = std::make_shared<FaultyDevice>(*real);
      auto world = std::make_optional(testing::create_world(bootstrap, options(), device));
      ASSERT_TRUE(world->ok()) << world->status().to_string();
      if (!drains) device->never_drain();
      world.reset();
      EXPECT_EQ(device->released(), drains ? 2 : 0) << "heap and ledger";
    });
  }
}

TEST_P(WorldLifetimeTest, AWorldThatWasMovedFromRefuses) {
  on_worlds(2, options(), [](World& world) {
    auto barrier = DeviceBarrier::create(world);
    ASSERT_TRUE(barrier.ok());
    World moved = std::move(world);
    const auto refuses = [](const Status& status) {
      EXPECT_EQ(status.code(), StatusCode::kMisuse) << status.to_string();
      EXPECT_TRUE(contains(status.message(), "moved from")) << status.to_string();
    };
    refuses(world.allocate(64).status());
    refuses(world.free({}));
    refuses(world.open_operator("x", {}, 1).status());
    refuses(world.close_operator(0));
    refuses(world.agree("x", 1));
    refuses(world.split(0, 4096).status());
    refuses(world.status());
    refuses(world.recover({}));
    refuses(DeviceBarrier::create(world).status());
    refuses(barrier->enqueue({}));
    refuses(barrier->close());
    world.abort();
    world.name_steps(0, {"x"});
    EXPECT_EQ(world.step_name(0, 0), "step 0");
    EXPECT_EQ(world.wait_name(0, 3), "no operator: site 3");
    EXPECT_EQ(world.recoveries(), 0u);
    EXPECT_TRUE(world.ledger().empty());
    EXPECT_EQ(world.rank(), -1);
    EXPECT_EQ(world.size(), 0);
    EXPECT_EQ(world.view().size, 0);
    EXPECT_EQ(world.options().device, -1);
    EXPECT_EQ(&world.device(), &moved.device());
    EXPECT_EQ(&world.bootstrap(), &moved.bootstrap());
    EXPECT_TRUE(moved.allocate(64).ok());
    world = std::move(moved);
    EXPECT_TRUE(world.allocate(64).ok());
  });
}

TEST_P(WorldLifetimeTest, ABarrierClosesOnce) {
  on_worlds(2, options(), [](World& world) {
    auto first = DeviceBarrier::create(world);
    ASSERT_TRUE(first.ok());
    DeviceBarrier moved = std::move(*first);
    EXPECT_EQ(first->close().code(), StatusCode::kMisuse);
    EXPECT_EQ(first->enqueue({}).code(), StatusCode::kMisuse);
    EXPECT_TRUE(moved.close().ok());
    auto second = DeviceBarrier::create(world);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(moved.close().code(), StatusCode::kMisuse);
    EXPECT_EQ(moved.enqueue({}).code(), StatusCode::kMisuse);
    EXPECT_TRUE(second->close().ok()) << "nobody else has closed it";
  });
}

// One call of the device after the other fails on one rank: all ranks get an error that names it, and the next World
// works.
TEST_P(WorldLifetimeTest, ACreationThatFailsOnOneRankFailsOnAll) {
  on_ranks(3, [](std::shared_ptr<Bootstrap> bootstrap) {
    auto real = Device::open(GetParam(), bootstrap->rank());
    ASSERT_TRUE(real.ok());
    const auto device = std::make_shared<FaultyDevice>(*real);
    for (int call = 1;; ++call) {
      if (bootstrap->rank() == 1) device->fail_call(call);
      auto world = testing::create_world(bootstrap, options(), device);
      device->fail_call(0);
      if (world.ok()) {
        EXPECT_GE(call, 6) << "stream, ledger, heap, its peers' and the control block";
        auto exchange = Exchange::create(*world);
        ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
        exchange->expect_works(1);
        return;
      }
      EXPECT_EQ(world.status().code(), StatusCode::kOutOfMemory) << world.status().to_string();
      EXPECT_TRUE(contains(world.status().message(), "rank 1: ")) << world.status().to_string();
      EXPECT_TRUE(contains(world.status().message(), "a fault of the test in ")) << world.status().to_string();
    }
  });
}

}  // namespace
}  // namespace farwarp
