// Deadlines, aborts and recover(), in Worlds of threads.
#include <gtest/gtest.h>

#include "farwarp/world/host/exchange_test_operator.h"
#include "farwarp/world/host/world.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

class WorldFailureTest : public WorldTestBase {};
INSTANTIATE_TEST_SUITE_P(Targets, WorldFailureTest, ::testing::ValuesIn(kAllTargets), name_of_target);

TEST_P(WorldFailureTest, AMissedDeadlineIsTold) {
  on_worlds(4, options(), [](World& world) {
    auto exchange = Exchange::create(world);
    ASSERT_TRUE(exchange.ok());
    exchange->expect_works(1);
    const std::uint32_t epoch = exchange->cells().epoch;
    if (world.rank() != 2) {
      ASSERT_TRUE(exchange->launch(1).ok());
      const Status drained = exchange->synchronize();
      EXPECT_TRUE(drained.ok()) << drained.to_string();
    }
    ASSERT_TRUE(world.bootstrap().barrier(60s).ok());
    const std::vector<WaitRecord> records = world.ledger();
    if (world.rank() == 2) {
      EXPECT_TRUE(records.empty());
      EXPECT_TRUE(world.status().ok()) << "no kernel of this rank has seen the abort";
    } else if (!records.empty()) {  // the first to pass the deadline aborts the others
      EXPECT_EQ(records.front().kind, StatusCode::kDeadline);
      EXPECT_EQ(records.front().rank, world.rank());
      EXPECT_EQ(records.front().operator_name, "exchange");
      EXPECT_EQ(records.front().site, "number");
      EXPECT_EQ(records.front().peer, 2);
      EXPECT_EQ(records.front().expected, epoch);
      EXPECT_GE(records.front().waited, 10s);
      EXPECT_EQ(world.status().code(), StatusCode::kDeadline);
      const std::string start = "rank " + std::to_string(world.rank()) +
                                " waited 10.0 s in exchange at 'number' for rank 2: expected " + std::to_string(epoch) +
                                ", saw ";
      EXPECT_TRUE(world.status().message().starts_with(start)) << world.status().message();
    } else {
      EXPECT_EQ(world.status().code(), StatusCode::kAborted) << world.status().to_string();
    }

    // Until recover() the World's queued kernels return at once. Then everything works again, with the same operator.
    ASSERT_TRUE(exchange->launch(1).ok());
    EXPECT_TRUE(exchange->synchronize().ok());
    EXPECT_FALSE(world.status().ok());
    const Status recovered = world.recover({exchange->stream()});
    ASSERT_TRUE(recovered.ok()) << recovered.to_string();
    EXPECT_TRUE(world.status().ok());
    EXPECT_TRUE(world.ledger().empty());
    const OperatorCells cells = exchange->cells();
    EXPECT_GT(cells.epoch, epoch + 1);
    EXPECT_EQ(cells.epoch % 2, 0u);
    EXPECT_EQ(cells.phase + cells.blocks_gone + cells.busy, 0u);
    for (std::uint32_t call = 0; call < 3; ++call) exchange->expect_works(100 * call);
  });
}

TEST_P(WorldFailureTest, AbortFromTheHost) {
  on_worlds(3, options(), [](World& world) {
    auto exchange = Exchange::create(world);
    ASSERT_TRUE(exchange.ok());
    if (world.rank() == 1) {
      world.abort();
      EXPECT_EQ(world.status().code(), StatusCode::kAborted);
    }
    ASSERT_TRUE(world.bootstrap().barrier(10s).ok());
    ASSERT_TRUE(exchange->launch(1).ok());
    EXPECT_TRUE(exchange->synchronize().ok());
    EXPECT_EQ(world.status().code(), StatusCode::kAborted);
    EXPECT_TRUE(contains(world.status().message(), "rank 1 raised the abort")) << world.status().message();
    ASSERT_TRUE(world.recover({exchange->stream()}).ok());
    exchange->expect_works(5);
  });
}

TEST_P(WorldFailureTest, RecoverWithoutAFailureIsHarmless) {
  on_worlds(2, options(), [](World& world) {
    ASSERT_TRUE(world.recover({}).ok()) << "no operator at all";
    auto exchange = Exchange::create(world);
    ASSERT_TRUE(exchange.ok());
    exchange->expect_works(1);
    ASSERT_TRUE(world.recover({exchange->stream()}).ok());
    exchange->expect_works(2);
  });
}

TEST_P(WorldFailureTest, RecoverFillsAgainWhatWasNotAllocatedAsZeros) {
  on_worlds(2, options(), [](World& world) {
    constexpr std::size_t kBytes = 512;
    const auto bytes_of = [&](const SymmetricBuffer& buffer) {
      std::vector<std::uint8_t> bytes(buffer.bytes);
      Stream stream = world.device().create_stream().value();
      EXPECT_TRUE(world.device().copy_out(bytes.data(), buffer.local, bytes.size(), stream).ok());
      EXPECT_TRUE(world.device().synchronize(stream, 1'000'000'000).ok());
      world.device().destroy_stream(stream);
      return bytes;
    };
    const auto overwrite = [&](const SymmetricBuffer& buffer) {
      Stream stream = world.device().create_stream().value();
      EXPECT_TRUE(world.device().fill(buffer.local, 7, buffer.bytes, stream).ok());
      EXPECT_TRUE(world.device().synchronize(stream, 1'000'000'000).ok());
      world.device().destroy_stream(stream);
    };
    const auto zeros = world.allocate(kBytes), ones = world.allocate(kBytes, 256, 0xff),
               freed = world.allocate(kBytes, 256, 0xff);
    ASSERT_TRUE(zeros.ok() && ones.ok() && freed.ok());
    EXPECT_EQ(bytes_of(*zeros), std::vector<std::uint8_t>(kBytes, 0));
    EXPECT_EQ(bytes_of(*ones), std::vector<std::uint8_t>(kBytes, 0xff));
    ASSERT_TRUE(world.free(*freed).ok());
    EXPECT_FALSE(world.free({ones->offset, kBytes / 2, nullptr}).ok());
    const auto in_its_place = world.allocate(kBytes);
    ASSERT_TRUE(in_its_place.ok());
    for (const SymmetricBuffer& buffer : {*zeros, *ones, *in_its_place}) overwrite(buffer);
    ASSERT_TRUE(world.recover({}).ok());
    EXPECT_EQ(bytes_of(*zeros), std::vector<std::uint8_t>(kBytes, 7));
    EXPECT_EQ(bytes_of(*ones), std::vector<std::uint8_t>(kBytes, 0xff));
    EXPECT_EQ(bytes_of(*in_its_place), std::vector<std::uint8_t>(kBytes, 7));
  });
}

TEST_P(WorldFailureTest, CapturedGraphsStayValid) {
  on_worlds(2, options(), [](World& world) {
    auto exchange = Exchange::create(world);
    ASSERT_TRUE(exchange.ok());
    Device& device = world.device();
    ASSERT_TRUE(device.begin_capture(exchange->stream()).ok());
    ASSERT_TRUE(exchange->launch(40 + world.rank()).ok());
    auto graph = device.end_capture(exchange->stream());
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const auto replay = [&] { ASSERT_TRUE(device.launch(**graph, exchange->stream()).ok()); };
    for (int call = 0; call < 3; ++call) {
      replay();
      exchange->expect_arrived(40);
    }
    ASSERT_TRUE(world.bootstrap().barrier(10s).ok());
    if (world.rank() == 0) world.abort();
    ASSERT_TRUE(world.bootstrap().barrier(10s).ok());
    replay();
    ASSERT_TRUE(exchange->synchronize().ok());
    EXPECT_EQ(world.status().code(), StatusCode::kAborted);
    ASSERT_TRUE(world.recover({exchange->stream()}).ok());
    replay();
    exchange->expect_arrived(40);
  });
}

TEST_P(WorldFailureTest, ARankThatCannotDrainMakesTheWorldLostForGood) {
  if (is_real()) GTEST_SKIP() << "the fault would end this process's use of the device";
  on_worlds(3, options(), [](World& world) {
    auto exchange = Exchange::create(world);
    ASSERT_TRUE(exchange.ok());
    ASSERT_TRUE((world.rank() == 1 ? exchange->launch_faulty() : exchange->launch(1)).ok());
    const Status status = world.recover({exchange->stream()});
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_TRUE(status.message().starts_with("recover: rank 1: stream 1 of 1 cannot drain: ")) << status.message();
    EXPECT_EQ(world.status().message(), status.message()) << "for good";
  });
}

TEST_P(WorldFailureTest, ARankThatLeavesMakesTheWorldLostForGood) {
  on_ranks(3, [](std::shared_ptr<Bootstrap> bootstrap) {
    auto world = World::create(bootstrap, options());
    ASSERT_TRUE(world.ok());
    auto buffer = world->allocate(64);
    ASSERT_TRUE(buffer.ok());
    bootstrap.reset();
    if (world->rank() == 1) return;  // destroys its World, which is local: no rank waits
    const Status status = world->recover({});
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_TRUE(contains(status.message(), "rank 1 left")) << status.message();
    EXPECT_EQ(world->status().code(), StatusCode::kPeerLost);
    EXPECT_EQ(world->recover({}).code(), StatusCode::kPeerLost);
    EXPECT_EQ(world->allocate(64).status().code(), StatusCode::kPeerLost);
    // Rank 1's memory is still mapped, for kernels that have not seen the loss yet.
    const std::uint32_t word = 1;
    EXPECT_TRUE(world->device().copy_in(world->view().heap[1] + buffer->offset, &word, sizeof(word), {}).ok());
    EXPECT_TRUE(world->device().synchronize({}, 1'000'000'000).ok());
  });
}

}  // namespace
}  // namespace farwarp
