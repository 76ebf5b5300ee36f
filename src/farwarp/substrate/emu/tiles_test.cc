// Tensor copies, wgmma, numbered barriers and clusters: correct use is right in every schedule, and each mistake is
// caught.
#include "farwarp/substrate/emu/tiles_test.h"

#include <algorithm>

#include "farwarp/base/half.h"
#include "farwarp/substrate/emu/litmus_rig_test.h"

namespace farwarp::emu {
namespace {

constexpr int kSchedules = 100;
// The tile begins inside each matrix and ends outside it.
constexpr int kRow = 32, kColumn = 8, kSteps = 3;
constexpr int kARows = 70, kBRows = 64, kDepth = 152, kPitch = 160;
constexpr int kOutPitch = 72;
constexpr std::size_t kBAt = 24 << 10, kOutAt = 48 << 10;

/// Small integers: every sum is exact in bf16.
int a_at(int row, int k) { return (row * 3 + k * 5) % 7 == 0 ? 1 : 0; }
int b_at(int row, int k) { return (row * 5 + k * 11) % 13 == 0 ? 1 : 0; }

class TilesTest : public testing::Test {
 protected:
  TilesTest() {
    args_.a = encode({rig_.memory(0), kARows, kDepth, kPitch, 64, 64, true});
    args_.b = encode({rig_.memory(0) + kBAt, kBRows, kDepth, kPitch, 64, 64, true});
    args_.row = kRow;
    args_.column = kColumn;
    store_into(0, 0, kARows, kBRows);
    args_.steps = kSteps;
  }

  /// From now on the tile's store writes only these rows and columns of the result: its map begins at (row, column).
  void store_into(int row, int column, int rows, int columns) {
    std::byte* const first = rig_.memory(0) + kOutAt + 2 * (row * kOutPitch + column);
    args_.out = encode({first, rows, columns, kOutPitch, 64, 64, true});
    args_.out_row = kRow - row;
    args_.out_column = kColumn - column;
    inside_ = {row, column, row + rows, column + columns};
  }

  /// Runs one schedule and returns the status of synchronize().
  Status run(TileVariant variant, int seed) {
    rig_.start(static_cast<std::uint64_t>(seed));
    fill(rig_.memory(0), kARows, a_at);
    fill(rig_.memory(0) + kBAt, kBRows, b_at);
    args_.variant = variant;
    const KernelRecord* record = find_kernel("litmus_tile", TargetKind::kEmuSm90);
    if (record == nullptr) return unavailable("litmus_tile");
    const LaunchShape shape{.blocks = 1, .threads = kTileThreads, .shared_bytes = kTileSharedBytes};
    Status status = rig_.machine().launch(TargetKind::kEmuSm90, 0, 0, *record, shape, &args_);
    return status.ok() ? rig_.synchronize(0) : status;
  }

  /// True if every element of the tile inside the result is right, and all other elements are still zero.
  bool right() const {
    const auto* out = reinterpret_cast<const std::uint16_t*>(rig_.memory(0) + kOutAt);
    for (int row = 0; row < kARows; ++row) {
      for (int column = 0; column < kOutPitch; ++column) {
        int expected = 0;
        const bool stored = row >= std::max(kRow, inside_.row) && row < inside_.end_row &&
                            column >= std::max(kColumn, inside_.column) && column < inside_.end_column;
        if (stored) {
          for (int k = 0; k < kDepth; ++k) expected += a_at(row, k) * b_at(column, k);
        }
        if (float_from(Bf16{out[row * kOutPitch + column]}) != static_cast<float>(expected)) return false;
      }
    }
    return true;
  }

  /// The number of schedules that gave a wrong answer, a race or a fault.
  int caught(TileVariant variant) {
    int count = 0;
    for (int seed = 1; seed <= kSchedules; ++seed) {
      const Status status = run(variant, seed);
      count += !status.ok() || !right() || !rig_.machine().report().race.empty();
    }
    return count;
  }

  Rig rig_{TargetKind::kEmuSm90};

 private:
  void fill(std::byte* memory, int rows, int (*value)(int, int)) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(rows * kPitch), 0x7fff);  // NaN between rows
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < kDepth; ++k)
        values[static_cast<std::size_t>(row * kPitch + k)] = bf16_from(static_cast<float>(value(row, k))).bits;
    }
    rig_.machine().host_write(memory, values.data(), values.size() * 2);
  }

  TileArgs args_{};
  struct {
    int row, column, end_row, end_column;
  } inside_{};
};

TEST_F(TilesTest, MultipliesATileThatReachesOverEveryEdge) {
  for (int seed = 1; seed <= kSchedules; ++seed) {
    const Status status = run(kTileRight, seed);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.to_string();
    ASSERT_TRUE(right()) << "seed " << seed;
    ASSERT_EQ(rig_.machine().report().race, "") << "seed " << seed;
  }
}

TEST_F(TilesTest, StoreDropsWhatLiesBehindTheMatrix) {
  store_into(kRow, kColumn, 20, 32);
  for (int seed = 1; seed <= kSchedules; ++seed) {
    const Status status = run(kTileRight, seed);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.to_string();
    ASSERT_TRUE(right()) << "seed " << seed;
  }
}

// On Hopper it is an illegal instruction.
TEST_F(TilesTest, StoreMayNotBeginBeforeTheMatrix) {
  store_into(kRow + 8, 16, 20, 32);
  EXPECT_NE(run(kTileRight, 1).message().find("the box begins at (-8, "), std::string::npos);
}

TEST_F(TilesTest, StoreNeedsAProxyFenceByWhoWrote) { EXPECT_EQ(caught(kTileNoProxyFence), kSchedules); }
TEST_F(TilesTest, StoreNeedsTheGroupsBarrier) { EXPECT_GT(caught(kTileNoGroupSync), 0); }
TEST_F(TilesTest, StageIsFreeOnlyOnceItsProductsHaveReadIt) { EXPECT_GT(caught(kTileReadEarly), 0); }
TEST_F(TilesTest, SumsArePoisonBeforeTheWait) { EXPECT_EQ(caught(kTileSumsEarly), kSchedules); }
TEST_F(TilesTest, BarrierMustExpectAllBytes) { EXPECT_GT(caught(kTileFewBytes), 0); }

TEST_F(TilesTest, NamesWhatIsMissing) {
  EXPECT_NE(run(kTileNoWgmmaFence, 1).message().find("wgmma without wgmma_fence()"), std::string::npos);
  EXPECT_NE(run(kTileNoWait, 1).message().find("exited without waiting for its last wgmma"), std::string::npos);
  EXPECT_TRUE(run(kTileRight, 1).ok());
}

/// litmus_rs on small integers, so that every number is exact.
class RsTest : public testing::Test {
 protected:
  static constexpr int kRows = 64, kColumns = 128, kGrid = 2;
  static constexpr std::size_t kMatrix = kRows * kColumns;  // elements

  RsTest() {
    const auto memory = rig_.machine().allocate(TargetKind::kEmuSm90, 0, 3 * kGrid * kGrid * kMatrix * 2 + kMatrix * 4);
    if (memory.ok()) memory_ = static_cast<std::byte*>(*memory);
  }
  ~RsTest() override { rig_.machine().release(memory_); }

  static float number(int what, int row, int column) {
    return static_cast<float>((row * 7 + column * 3 + what * 5) % 3 - 1);
  }
  TensorMap map_of(int what) {
    std::byte* const base = memory_ + static_cast<std::size_t>(what) * kGrid * kGrid * kMatrix * 2;
    return encode({.base = base,
                   .rows = kRows,
                   .columns = what == 2 ? kColumns : 64,
                   .pitch = kColumns,
                   .box_rows = 64,
                   .box_columns = 64,
                   .swizzled = true,
                   .grid = {kGrid, kGrid},
                   .grid_pitch = {kMatrix, kGrid * kMatrix}});
  }
  Status run(RsVariant variant, int seed, int matrix = 1) {
    return run("litmus_rs", kTileThreads, variant, seed, matrix);
  }
  Status run(const char* kernel, int threads, std::int32_t variant, int seed, int matrix) {
    rig_.start(static_cast<std::uint64_t>(seed));
    for (int what = 0; what < 3; ++what) {
      std::vector<std::uint16_t> values(kGrid * kGrid * kMatrix, 0x7fff);  // NaN in the matrices that are not asked for
      for (int row = 0; row < kRows; ++row) {
        for (int column = 0; column < kColumns; ++column)
          values[3 * kMatrix + static_cast<std::size_t>(row * kColumns + column)] =
              bf16_from(number(what, row, column)).bits;
      }
      rig_.machine().host_write(memory_ + static_cast<std::size_t>(what) * values.size() * 2, values.data(),
                                values.size() * 2);
    }
    const LitmusRsArgs args{map_of(0), map_of(1), map_of(2), out(), matrix, variant};
    const KernelRecord* record = find_kernel(kernel, TargetKind::kEmuSm90);
    if (record == nullptr) return unavailable(kernel);
    const LaunchShape shape{.blocks = 1, .threads = threads, .shared_bytes = kRsSharedBytes};
    const Status status = rig_.machine().launch(TargetKind::kEmuSm90, 0, 0, *record, shape, &args);
    return status.ok() ? rig_.synchronize(0) : status;
  }
  float* out() { return reinterpret_cast<float*>(memory_ + 3 * kGrid * kGrid * kMatrix * 2); }
  bool right() {
    for (int row = 0; row < kRows; ++row) {
      float scores[kRows] = {};
      for (int key = 0; key < kRows; ++key) {
        for (int i = 0; i < 64; ++i) scores[key] += number(0, row, i) * number(1, key, i);
      }
      for (int column = 0; column < kColumns; ++column) {
        float sum = 0;
        for (int key = 0; key < kRows; ++key) sum += scores[key] * number(2, key, column);
        if (out()[row * kColumns + column] != 2 * sum) return false;
      }
    }
    return true;
  }
  int caught(RsVariant variant) { return caught("litmus_rs", kTileThreads, variant); }
  int caught(MnVariant variant) { return caught("litmus_mn", 128, variant); }
  int caught(const char* kernel, int threads, std::int32_t variant) {
    int count = 0;
    for (int seed = 1; seed <= kSchedules; ++seed) {
      const Status status = run(kernel, threads, variant, seed, 1);
      count += !status.ok() || !rig_.machine().report().race.empty() || !right();
    }
    return count;
  }

  Rig rig_{TargetKind::kEmuSm90};
  std::byte* memory_ = nullptr;
};

TEST_F(RsTest, MultipliesRegistersByRowsOfAMatrixOfAGrid) { EXPECT_EQ(caught(kRsRight), 0); }
TEST_F(RsTest, AnAbsentMatrixIsZeros) {
  ASSERT_TRUE(run(kRsRight, 1, kGrid).ok());
  for (std::size_t i = 0; i < kMatrix; ++i) ASSERT_EQ(out()[i], 0.0f);
}
TEST_F(RsTest, RegistersOfAAreReadUntilTheWait) { EXPECT_GT(caught(kRsWriteEarly), 0); }
TEST_F(RsTest, SumsOfAPendingGroupArePoison) { EXPECT_EQ(caught(kRsSumsEarly), kSchedules); }
TEST_F(RsTest, AnArrivalCoversWhatPrecedesIt) { EXPECT_GT(caught(kRsArriveBefore), 0); }
TEST_F(RsTest, AnArrivalIsSeenByWhoWaits) { EXPECT_GT(caught(kRsNoArrive), 0); }

TEST_F(RsTest, MultipliesAnMnMajorA) { EXPECT_EQ(caught(kMnRight), 0); }
TEST_F(RsTest, MultipliesRegistersByAKMajorB) { EXPECT_EQ(caught(kMnFromRegisters), 0); }
TEST_F(RsTest, AProductInSharedMemoryNeedsAProxyFence) { EXPECT_EQ(caught(kMnNoProxyFence), kSchedules); }

/// The number of the `kSchedules` schedules of litmus_cluster, on two clusters, that end with every word right.
int right_clusters(LitmusOrder variant) {
  Rig rig(TargetKind::kEmuSm90);
  const LaunchShape shape{2 * kClusterBlocks, 64, 64, kClusterBlocks};
  int right = 0;
  for (int seed = 1; seed <= kSchedules; ++seed) {
    rig.start(static_cast<std::uint64_t>(seed));
    bool all = rig.run("litmus_cluster", 1, variant, shape).ok() && rig.machine().report().race.empty();
    for (int i = 0; i < 2 * kClusterBlocks * kClusterBlocks && all; ++i) {
      const int from = i % kClusterBlocks, to = i / kClusterBlocks % kClusterBlocks;
      all = rig.result(0, i) == static_cast<std::uint64_t>(10 * from + to);
    }
    right += all ? 1 : 0;
  }
  return right;
}

TEST(ClusterTest, ABarrierShowsWhatOthersStored) { EXPECT_EQ(right_clusters(kRight), kSchedules); }
TEST(ClusterTest, OnlyIfTheyArriveWithRelease) { EXPECT_LT(right_clusters(kNoRelease), kSchedules); }
TEST(ClusterTest, AndOnlyToWhoWaits) { EXPECT_LT(right_clusters(kNoWait), kSchedules); }

TEST(ClusterTest, NobodyStoresBeforeAllHaveBegun) {
  Rig rig(TargetKind::kEmuSm90);
  rig.start(1);
  const Status status = rig.run("litmus_cluster", 1, kNoBarrier, {kClusterBlocks, 64, 64, kClusterBlocks});
  EXPECT_NE(status.message().find("other blocks may not have begun"), std::string::npos) << status.message();
}

TEST(ClusterTest, MustDivideTheBlocks) {
  Rig rig(TargetKind::kEmuSm90);
  const Status status = rig.launch("litmus_cluster", 0, kRight, {6, 64, 64, kClusterBlocks});
  EXPECT_NE(status.message().find("blocks is 6, must be a multiple of its cluster's 4"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace farwarp::emu
