// Worlds of threads.
#include "farwarp/world/host/world.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "farwarp/substrate/emu/machine.h"
#include "farwarp/world/host/clock_exchange.h"
#include "farwarp/world/host/device_barrier.h"
#include "farwarp/world/host/exchange_test_operator.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_state.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

class WorldTest : public WorldTestBase {};
INSTANTIATE_TEST_SUITE_P(Targets, WorldTest, ::testing::ValuesIn(kAllTargets), name_of_target);

// ---- creation ------------------------------------------------------------------------------------------------------

TEST_P(WorldTest, EveryRankSeesEveryHeap) {
  on_worlds(4, options(), [](World& world) {
    EXPECT_EQ(world.size(), 4);
    EXPECT_EQ(world.view().rank, world.rank());
    EXPECT_EQ(world.view().size, 4);
    EXPECT_NE(world.view().ledger, nullptr);
    EXPECT_TRUE(world.status().ok());
    EXPECT_TRUE(world.ledger().empty());
    auto buffer = world.allocate(64);
    ASSERT_TRUE(buffer.ok()) << buffer.status().to_string();
    auto* own = static_cast<std::byte*>(buffer->local);
    EXPECT_EQ(own, world.view().heap[world.rank()] + buffer->offset);
    // Each rank writes its number into the next rank's heap, and finds its predecessor's number in its own.
    const std::uint32_t mine = 100 + world.rank();
    const int next = (world.rank() + 1) % 4;
    ASSERT_TRUE(world.device().copy_in(world.view().heap[next] + buffer->offset, &mine, sizeof(mine), {}).ok());
    ASSERT_TRUE(world.device().synchronize({}, 1'000'000'000).ok());
    ASSERT_TRUE(world.bootstrap().barrier(10s).ok());
    std::uint32_t got = 0;
    ASSERT_TRUE(world.device().copy_out(&got, own, sizeof(got), {}).ok());
    EXPECT_EQ(got, 100u + (world.rank() + 3) % 4);
    ASSERT_TRUE(world.bootstrap().barrier(10s).ok());
  });
}

TEST_P(WorldTest, OptionsAreChecked) {
  on_ranks(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    WorldOptions wrong = options();
    wrong.deadline = 0ms;
    EXPECT_EQ(World::create(bootstrap, wrong).status().message(),
              "WorldOptions::deadline is 0 ms; allowed: 1 to 86400000 ms");
    for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 65535, SIZE_MAX / 2}) {
      wrong = options();
      wrong.heap_bytes = bytes;
      const Status refused = World::create(bootstrap, wrong).status();
      EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused.to_string();
      EXPECT_TRUE(contains(refused.message(), "WorldOptions::heap_bytes is " + std::to_string(bytes)))
          << refused.message();
    }
    wrong = options();
    wrong.target = static_cast<TargetKind>(99);
    const Status no_target = World::create(bootstrap, wrong).status();
    EXPECT_EQ(no_target.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(contains(no_target.message(), "target is 99")) << no_target.message();
    wrong = options();
    wrong.heap_bytes = std::size_t{1} << 46;
    EXPECT_EQ(World::create(bootstrap, wrong).status().code(), StatusCode::kOutOfMemory);
    wrong = options();
    wrong.heap_bytes += bootstrap->rank() * 256;
    const Status mismatch = World::create(bootstrap, wrong).status();
    EXPECT_EQ(mismatch.code(), StatusCode::kMismatch);
    EXPECT_TRUE(contains(mismatch.message(), "rank 1 called World::create(")) << mismatch.message();
    EXPECT_TRUE(contains(mismatch.message(), "heap of 1048832 bytes")) << mismatch.message();
    wrong = options();
    wrong.device = bootstrap->rank() == 0 ? 0 : 99;
    const Status no_device = World::create(bootstrap, wrong).status();
    EXPECT_TRUE(no_device.message().starts_with("rank 1: ")) << no_device.to_string();
    EXPECT_TRUE(World::create(bootstrap, options()).ok()) << "the bootstrap is as good as before";
  });
  EXPECT_EQ(World::create(nullptr, options()).status().code(), StatusCode::kInvalidArgument);
  const Status too_many = run_ranks(
      9, [](std::shared_ptr<Bootstrap> bootstrap) { return World::create(std::move(bootstrap), options()).status(); });
  EXPECT_EQ(too_many.message(), "the bootstrap has 9 ranks; allowed: 1 to 8");
}

TEST_P(WorldTest, ARankThatNeverComesIsNamed) {
  on_ranks(3, [](std::shared_ptr<Bootstrap> bootstrap) {
    WorldOptions impatient = options();
    impatient.deadline = 50ms;
    if (bootstrap->rank() == 2) {
      std::this_thread::sleep_for(1s);
      return;
    }
    const Status status = World::create(bootstrap, impatient).status();
    EXPECT_EQ(status.code(), StatusCode::kDeadline);
    EXPECT_TRUE(contains(status.message(), "rank 2 did not come")) << status.message();
  });
}

// ---- symmetric heap ------------------------------------------------------------------------------------------------

TEST_P(WorldTest, AllocatesZeroedMemoryAtTheSameOffset) {
  on_worlds(3, options(), [](World& world) {
    auto first = world.allocate(1000);
    auto second = world.allocate(1000, 4096);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(second->offset % 4096, 0u);
    auto offsets =
        Collectives(std::shared_ptr<Bootstrap>(&world.bootstrap(), [](Bootstrap*) {}), 10s).gather(second->offset);
    ASSERT_TRUE(offsets.ok());
    for (const std::size_t offset : *offsets) EXPECT_EQ(offset, second->offset);
    // Memory that is allocated again is zeroed again.
    ASSERT_TRUE(world.device().fill(first->local, 0xab, 1000, {}).ok());
    ASSERT_TRUE(world.device().synchronize({}, 1'000'000'000).ok());
    ASSERT_TRUE(world.free(*first).ok());
    auto again = world.allocate(500);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->offset, first->offset);
    std::vector<unsigned char> bytes(500, 1);
    ASSERT_TRUE(world.device().copy_out(bytes.data(), again->local, bytes.size(), {}).ok());
    EXPECT_EQ(bytes, std::vector<unsigned char>(500, 0));
  });
}

TEST_P(WorldTest, HeapErrorsAreTheSameOnAllRanks) {
  on_worlds(3, options(), [](World& world) {
    auto all = world.allocate(std::size_t{1} << 20);
    ASSERT_TRUE(all.ok()) << "heap_bytes is what a user can have: " << all.status().to_string();
    auto more = world.allocate(1);
    EXPECT_EQ(more.status().code(), StatusCode::kOutOfMemory);
    EXPECT_TRUE(contains(more.status().message(), "0 of 1114112 bytes are free")) << more.status().message();
    EXPECT_TRUE(world.free(*all).ok());
    EXPECT_EQ(world.free(*all).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(world.free({}).code(), StatusCode::kInvalidArgument) << "the control block is not the caller's";
    EXPECT_EQ(world.allocate(0).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(world.allocate(8, 3).status().code(), StatusCode::kInvalidArgument);
  });
}

TEST_P(WorldTest, ADifferentOrderOfCallsIsAnErrorOnAllRanks) {
  on_worlds(3, options(), [](World& world) {
    auto buffer = world.allocate(256);
    ASSERT_TRUE(buffer.ok());
    auto different = world.allocate(world.rank() == 2 ? 512 : 256);
    EXPECT_EQ(different.status().code(), StatusCode::kMismatch);
    EXPECT_TRUE(contains(different.status().message(), "rank 2 called allocate(512 bytes, alignment 256, fill 0)"))
        << different.status().message();
    EXPECT_TRUE(contains(different.status().message(), "rank 0 allocate(256 bytes, alignment 256, fill 0)"))
        << different.status().message();
    const Status order = world.rank() == 1 ? world.free(*buffer) : world.allocate(64).status();
    EXPECT_EQ(order.code(), StatusCode::kMismatch);
    EXPECT_TRUE(contains(order.message(), "rank 1 called free(256 bytes at offset 65536)")) << order.message();
    // The user's barrier on one rank, a call of the World on the others.
    const Status barrier = world.rank() == 0 ? world.bootstrap().barrier(10s) : world.allocate(64).status();
    EXPECT_EQ(barrier.code(), StatusCode::kMismatch);
  });
}

TEST_P(WorldTest, CallsOnTwoWorldsAreNotTakenForEachOther) {
  on_ranks(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    auto first = World::create(bootstrap, options());
    auto second = World::create(bootstrap, options());
    ASSERT_TRUE(first.ok() && second.ok());
    auto buffer = (bootstrap->rank() == 0 ? *first : *second).allocate(64);
    EXPECT_EQ(buffer.status().code(), StatusCode::kMismatch);
  });
}

// ---- operators and epochs ------------------------------------------------------------------------------------------

TEST_P(WorldTest, EpochsAreEvenAndNeverComeBack) {
  on_worlds(2, options(), [](World& world) {
    auto first = Exchange::create(world);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    EXPECT_EQ(first->slot(), 0);
    EXPECT_EQ(first->cells().epoch, 2u);
    for (std::uint32_t call = 0; call < 5; ++call) first->expect_works(10 * call);
    EXPECT_EQ(first->cells().epoch, 7u);
    auto second = Exchange::create(world);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second->slot(), 1);
    EXPECT_EQ(second->cells().epoch, 10u) << "past what the first has reached";
    second->expect_works(3);
    first->expect_works(4);
    ASSERT_TRUE(second->close().ok());
    auto third = Exchange::create(world);
    ASSERT_TRUE(third.ok());
    EXPECT_EQ(third->slot(), 1) << "the slot is free again";
    EXPECT_EQ(third->cells().epoch, 14u) << "past what the closed one had reached, 11";
    third->expect_works(5);
    EXPECT_EQ(world.close_operator(1).code(), StatusCode::kOk);
    EXPECT_EQ(world.close_operator(1).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(world.close_operator(-1).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(world.close_operator(kMaxOperators).code(), StatusCode::kInvalidArgument);
  });
}

TEST(Epochs, FreshOnesAreEvenNotZeroAndLater) {
  EXPECT_EQ(fresh_epoch(0), 2u);
  EXPECT_EQ(fresh_epoch(7), 10u);
  EXPECT_EQ(fresh_epoch(8), 10u);
  EXPECT_EQ(fresh_epoch(0xfffffffbu), 0xfffffffeu);
  for (const std::uint32_t last : {0xfffffffcu, 0xfffffffdu, 0xfffffffeu, 0xffffffffu}) {
    const std::uint32_t fresh = fresh_epoch(last);
    EXPECT_EQ(fresh % 2, 0u);
    EXPECT_NE(fresh, 0u);
    EXPECT_EQ(later_epoch(last, fresh), fresh) << "across the wrap";
  }
}

TEST_P(WorldTest, EpochsWrap) {
  testing::set_first_epoch(0xfffffffeu);
  on_worlds(2, options(), [](World& world) {
    auto exchange = Exchange::create(world);
    ASSERT_TRUE(exchange.ok());
    EXPECT_EQ(exchange->cells().epoch, 0xfffffffeu);
    for (std::uint32_t call = 0; call < 5; ++call) exchange->expect_works(10 * call);
    EXPECT_EQ(exchange->cells().epoch, 7u) << "fffffffe, ffffffff, 4, 5, 6: 0 is left out";
    auto next = Exchange::create(world);
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(next->cells().epoch, 10u) << "7 is later than 0xfffffffe";
  });
  testing::set_first_epoch(2);
}

TEST_P(WorldTest, ConfigurationsMustAgree) {
  on_worlds(3, options(), [](World& world) {
    const auto slot = world.open_operator("gemm", {}, world.rank() == 1 ? 0xbad : 0x600d);
    EXPECT_EQ(slot.status().code(), StatusCode::kMismatch);
    EXPECT_TRUE(contains(slot.status().message(), "rank 1 called open_operator(gemm, configuration 0xbad)"))
        << slot.status().message();
    EXPECT_EQ(world.open_operator("gemm", {}, 1).value(), 0) << "a refused one takes no slot";
  });
}

TEST_P(WorldTest, SlotsRunOut) {
  on_worlds(2, options(), [](World& world) {
    for (int slot = 0; slot < kMaxOperators; ++slot) ASSERT_EQ(world.open_operator("x", {}, 1).value(), slot);
    EXPECT_EQ(world.open_operator("x", {}, 1).status().code(), StatusCode::kOutOfMemory);
    ASSERT_TRUE(world.close_operator(17).ok());
    EXPECT_EQ(world.open_operator("x", {}, 1).value(), 17);
  });
}

// ---- schedules -----------------------------------------------------------------------------------------------------

// With World's host calls, the emulator's schedule must not depend on the operating system's order of threads.
TEST_P(WorldTest, SchedulesReplay) {
  if (is_real()) GTEST_SKIP() << "real machines have no seed";
  const auto hash_of_run = [](std::uint64_t seed) {
    emu::Machine::instance().set_schedule({.seed = seed, .adversarial = true});
    on_worlds(4, options(), [](World& world) {
      auto exchange = Exchange::create(world);
      ASSERT_TRUE(exchange.ok());
      for (std::uint32_t call = 0; call < 3; ++call) exchange->expect_works(call);
      EXPECT_TRUE(world.recover({exchange->stream()}).ok());
      exchange->expect_works(7);
      EXPECT_TRUE(exchange->close().ok());
    });
    return emu::Machine::instance().report().hash;
  };
  const std::uint64_t first = hash_of_run(3);
  EXPECT_EQ(hash_of_run(3), first);
  EXPECT_EQ(hash_of_run(3), first);
  EXPECT_NE(hash_of_run(4), first);
}

// ---- the barrier of all ranks ---------------------------------------------------------------------------------------

TEST_P(WorldTest, NobodyPassesTheDeviceBarrierBeforeTheLast) {
  constexpr std::uint64_t kLate = 20'000'000;
  on_worlds(3, options(), [](World& world) {
    auto barrier = DeviceBarrier::create(world);
    ASSERT_TRUE(barrier.ok()) << barrier.status().to_string();
    Device& device = world.device();
    const auto stream = device.create_stream();
    auto start = device.create_event(), end = device.create_event();
    ASSERT_TRUE(stream.ok() && start.ok() && end.ok());
    for (int late = 0; late < 3; ++late) {  // each rank is the last one once
      ASSERT_TRUE(device.record(**start, *stream).ok());
      if (world.rank() == late) {
        ASSERT_TRUE(device.enqueue_delay(*stream, kLate).ok());
      }
      ASSERT_TRUE(barrier->enqueue(*stream).ok());
      ASSERT_TRUE(device.record(**end, *stream).ok());
      ASSERT_TRUE(device.synchronize(*stream, 20'000'000'000).ok());
      ASSERT_TRUE(world.status().ok()) << world.status().to_string();
      const auto us = device.microseconds_between(**start, **end);
      ASSERT_TRUE(us.ok()) << us.status().to_string();
      // On real devices, the host of an early rank may start a little after the late rank's delay.
      if (is_emulated(world.device().target())) {
        EXPECT_GE(*us, kLate / 1000 * 0.9);
      }
      ASSERT_TRUE(world.bootstrap().barrier(10s).ok());
    }
    EXPECT_TRUE(barrier->close().ok());
    device.destroy_stream(*stream);
  });
}

// ---- subgroups -----------------------------------------------------------------------------------------------------

TEST_P(WorldTest, SubgroupsAreWorldsOfTheirOwn) {
  on_worlds(4, options(), [](World& world) {
    const int colour = world.rank() == 3 ? -1 : world.rank() % 2;
    auto group = world.split(colour, 4096);
    if (colour < 0) {
      EXPECT_EQ(group.status().code(), StatusCode::kUnavailable);
      EXPECT_TRUE(world.status().ok());
    } else {
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      EXPECT_EQ(group->size(), colour == 0 ? 2 : 1);
      EXPECT_EQ(group->rank(), world.rank() / 2);
      EXPECT_EQ(&group->device(), &world.device());
      EXPECT_EQ(group->allocate(8192).status().code(), StatusCode::kOutOfMemory);
      auto exchange = Exchange::create(*group);
      ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
      exchange->expect_works(7 + colour);
      ASSERT_TRUE(group->bootstrap().barrier(10s).ok());
      if (colour == 1) {  // an abort of one subgroup does not affect the others
        group->abort();
        ASSERT_TRUE(group->bootstrap().barrier(10s).ok());
        EXPECT_FALSE(group->status().ok());
      } else {
        exchange->expect_works(9);
      }
    }
    auto exchange = Exchange::create(world);
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    exchange->expect_works(11);
  });
}

/// The emulator's devices share a clock. Twice: the cells are written again.
TEST_P(WorldTest, ClocksOfDevicesAreCompared) {
  on_streams(3, options(), [](World& world, Stream stream) {
    for (int call = 0; call < 2; ++call) {
      const auto offset = exchange_clocks(world, stream);
      ASSERT_TRUE(offset.ok()) << offset.status().to_string();
      if (world.rank() == 0) {
        EXPECT_EQ(offset->ns, 0);
      } else if (is_emulated(GetParam())) {
        EXPECT_LE(std::abs(offset->ns), offset->error);
      }
      EXPECT_LT(offset->error, 1e9);
    }
  });
}

}  // namespace
}  // namespace farwarp
