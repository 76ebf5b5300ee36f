// Parts of a worker, alone. Of the loading threads: whatever they have loaded when they stop, and whether or not a wait
// has expired, no copy outlives the block. The squares that follow a streamed vector.
#include "farwarp/fleet/worker_test.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "farwarp/runtime/device_memory.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp::fleet {
namespace {

struct Load {
  int copies;  ///< slices of the vector, or slots of weights
  int freed;   ///< of them by the reader
};

class WorkerParts : public WorldTestOf<TargetKind> {
 protected:
  /// The emulator reports a copy that is in flight when its block ends.
  static void expect_all_land(const char* kernel_name, int ring, const Load& load, const Task& task,
                              std::int64_t data_bytes);
};
INSTANTIATE_TEST_SUITE_P(Targets, WorkerParts, testing::Values(TargetKind::kEmuSm90, TargetKind::kCuda),
                         name_of_target);

void WorkerParts::expect_all_land(const char* kernel_name, int ring, const Load& load, const Task& task,
                                  std::int64_t data_bytes) {
  WorldOptions short_deadline = options();
  short_deadline.deadline = std::chrono::milliseconds(200);
  on_streams(1, short_deadline, [&](World& world, Stream stream) {
    Device& device = world.device();
    const auto kernel = device.kernel(kernel_name);
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    const auto data = DeviceMemory::create(device, static_cast<std::size_t>(data_bytes));
    const auto loaded = DeviceMemory::create(device, sizeof(std::int32_t));
    ASSERT_TRUE(data.ok() && loaded.ok());
    EXPECT_TRUE(device.fill(data->get(), 0, data->bytes(), stream).ok());
    const LoaderTestArgs args{world.view(), task, data->as<std::byte>(), load.freed, loaded->as<std::int32_t>()};
    ASSERT_TRUE(
        launch(device, *kernel,
               {.blocks = 1,
                .threads = kLoaderTestThreads,
                .shared_bytes = ProjectShared<kLoaderTestColumns, true>::kBytes + ring_bytes(kLoaderTestColumns, true)},
               args, stream)
            .ok());
    const Status status = drain(world, stream);
    ASSERT_TRUE(status.ok()) << load.copies << " copies, " << load.freed << " freed: " << status.to_string();
    std::int32_t result = -1;
    EXPECT_TRUE(device.copy_out(&result, loaded->get(), sizeof result, stream).ok());
    EXPECT_EQ(result, load.copies <= ring + load.freed ? 1 : 0) << load.copies << " copies, " << load.freed << " freed";
  });
}

TEST_P(WorkerParts, NoCopyOfAVectorOutlivesItsBlock) {
  constexpr int kRing = vector_slots(kLoaderTestColumns);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    if (!is_real()) emu::Machine::instance().set_schedule({.seed = seed, .adversarial = true});
    for (const Load load : {Load{1, 0}, Load{3, 1}, Load{kRing, 0}, Load{kRing + 1, 1}, Load{kRing + 3, 5},
                            Load{2 * kRing, kRing}, Load{kRing + 1, 0}, Load{2 * kRing, kRing - 2}}) {
      Task task{};
      task.count = 1;
      task.matrix = {1, load.copies, kMaxPassSlices, kGroupTiles};
      expect_all_land("fleet_test_load_vector", kRing, load, task,
                      std::int64_t{load.copies} * vector_slice_bytes(kLoaderTestColumns));
    }
  }
}

/// At most four are in flight. The last slot is half a one.
TEST_P(WorkerParts, NoCopyOfWeightsOutlivesItsBlock) {
  constexpr int kRing = ring_slots(kLoaderTestColumns);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    if (!is_real()) emu::Machine::instance().set_schedule({.seed = seed, .adversarial = true});
    for (const Load load : {Load{1, 0}, Load{3, 1}, Load{kRing, 0}, Load{kRing + 1, 1}, Load{kRing + 2, 2},
                            Load{kRing + 1, 0}, Load{kRing + 2, 1}}) {
      Task task{};
      task.count = 1;
      task.matrix = {1, load.copies * kSlotSlices - 1};
      expect_all_land("fleet_test_load_weights", kRing, load, task, task.matrix.bytes());
    }
  }
}

/// Of one copy of squares, of two of which the second is short, and of three; after an odd and an even number of
/// slices.
TEST_P(WorkerParts, SquaresFollowTheirVector) {
  constexpr int kColumns = kSquaresTestColumns;
  constexpr float kEpsilon = 0.5f;
  for (const int slices : {1, 4, 9, 20}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      if (!is_real()) emu::Machine::instance().set_schedule({.seed = seed, .adversarial = true});
      on_streams(1, options(), [&](World& world, Stream stream) {
        Device& device = world.device();
        const auto kernel = device.kernel("fleet_test_squares");
        ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
        const int rows = slices * kSliceDepth, tiles = rows / kTileRows;
        std::vector<float> numbers(static_cast<std::size_t>(normed_fours(kColumns, rows)) * 2);  // two of a four
        const auto square = [](int tile, int column) { return static_cast<float>(tile % 7 + 3 * column + 1); };
        for (int tile = 0; tile < tiles; ++tile) {
          for (int column = 0; column < kColumns; ++column) {
            const std::int64_t at = squares_at(kColumns, rows, tile, column / 2);
            numbers[static_cast<std::size_t>(2 * at + column % 2)] = square(tile, column);
          }
        }
        const auto vector = DeviceMemory::create(device, numbers.size() * sizeof(float));
        const auto inverses = DeviceMemory::create(device, kColumns * sizeof(float));
        Task task{};
        task.count = 1;
        task.matrix = {1, slices, kMaxPassSlices, kGroupTiles};
        const auto weights = DeviceMemory::create(device, static_cast<std::size_t>(task.matrix.bytes()));
        ASSERT_TRUE(vector.ok() && inverses.ok() && weights.ok());
        ASSERT_TRUE(device.copy_in(vector->get(), numbers.data(), vector->bytes(), stream).ok());
        ASSERT_TRUE(device.fill(weights->get(), 0, weights->bytes(), stream).ok());
        const SquaresTestArgs args{
            world.view(), task, vector->as<std::byte>(), weights->as<std::byte>(), kEpsilon, inverses->as<float>()};
        ASSERT_TRUE(launch(device, *kernel,
                           {.blocks = 1, .threads = kSquaresTestThreads, .shared_bytes = kSquaresTestBytes}, args,
                           stream)
                        .ok());
        const Status status = drain(world, stream);
        ASSERT_TRUE(status.ok()) << status.to_string();
        std::vector<float> got(kColumns);
        ASSERT_TRUE(device.copy_out(got.data(), inverses->get(), inverses->bytes(), stream).ok());
        for (int column = 0; column < kColumns; ++column) {
          double squares = 0;
          for (int tile = 0; tile < tiles; ++tile) squares += static_cast<double>(square(tile, column));
          const double expected = 1 / std::sqrt(squares / rows + static_cast<double>(kEpsilon));
          ASSERT_NEAR(static_cast<double>(got[static_cast<std::size_t>(column)]), expected, 1e-5 * expected)
              << "column " << column << ", " << slices << " slices, seed " << seed;
        }
      });
    }
  }
}

}  // namespace
}  // namespace farwarp::fleet
