// The dispatcher on every available target: its fallbacks, its errors, and ranks whose arguments differ.
#include "farwarp/ops/parallel_gemm/dispatch/parallel_gemm.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "farwarp/base/temporary_folder_test.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"
#include "farwarp/machine/kept_file.h"
#include "farwarp/ops/parallel_gemm/dispatch/plan_table.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::DeviceBuffer;
using parallel_gemm::Kind;
using parallel_gemm::Path;

constexpr int kRanks = 3;

ParallelGemmDesc small() {
  ParallelGemmDesc desc;
  desc.m = 24;
  desc.n = 48;
  desc.k = 48;
  return desc;
}

class ParallelGemmTest : public WorldTestBase {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }

  /// Writes a table for this machine with `path` and `tile_columns` for the small shape.
  static void keep(Path path, int tile_columns) {
    const auto device = Device::open(GetParam(), 0);
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    parallel_gemm::PlanTable table{(*device)->model(), kRanks, {}};
    for (const Kind kind : parallel_gemm::kKinds) {
      const ParallelGemmDesc desc = small();
      put(table, {kind, desc.m, desc.n, desc.k, desc.dtype, path, tile_columns, 0, 30, 20, "2026-11-22"});
    }
    ASSERT_TRUE(replace_text(*parallel_gemm::plans_file(table.device, kRanks), to_json(table)).ok());
  }

  /// Runs the harness's check, which compares results with the oracle.
  static harness::CaseResult check(const char* op, const std::string& settings) {
    harness::CaseRequest request;
    request.op = harness::find_operator(op);
    if (!harness::add_settings("m=24,n=48,k=48," + settings, request.params).ok()) ADD_FAILURE() << settings;
    request.options.target = GetParam();
    request.options.ranks = kRanks;
    request.options.seed = 3;
    return run_case(request, nullptr, [](int) {});
  }

  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Targets, ParallelGemmTest, ::testing::ValuesIn(kAllTargets), name_of_target);

TEST_P(ParallelGemmTest, WithoutATableBestIsOursAndSaysSo) {
  on_worlds(kRanks, options(), [&](World& world) {
    for (const Kind kind : parallel_gemm::kKinds) {
      auto op = ParallelGemm::create(world, kind, small());
      ASSERT_TRUE(op.ok()) << op.status().to_string();
      EXPECT_EQ(op->path(), Path::kOwn);
      EXPECT_EQ(op->why(), "there is no table of plans for 3 x " + world.device().model());
      EXPECT_FALSE(op->plan().empty());
      EXPECT_TRUE(op->close().ok());
      EXPECT_EQ(op->close().code(), StatusCode::kMisuse);
    }
  });
}

TEST_P(ParallelGemmTest, BestIsRight) {
  if (is_real()) GTEST_SKIP() << "farwarp check does it there";
  for (const char* op : {"ag-gemm", "gemm-rs", "gemm-ar"}) {
    for (const char* settings : {"path=best", "path=best,has_bias=1,dtype=fp16,graph=1,burst=2"}) {
      const auto result = check(op, settings);
      EXPECT_TRUE(result.outcome.pass) << op << " " << settings << ": " << result.outcome.detail;
    }
    const auto unfused = check(op, "path=unfused");
    EXPECT_EQ(unfused.outcome.status.code(), StatusCode::kUnavailable) << unfused.outcome.detail;
    EXPECT_EQ(harness::exit_code(unfused), 3);
  }
}

TEST_P(ParallelGemmTest, WithoutLibrariesBestIsOursAndSaysSo) {
  if (is_real()) GTEST_SKIP() << "it may have the libraries";
  keep(Path::kUnfused, 0);
  on_worlds(kRanks, options(), [&](World& world) {
    auto op = ParallelGemm::create(world, Kind::kReduceScatter, small());
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    EXPECT_EQ(op->path(), Path::kOwn);
    EXPECT_TRUE(
        contains(op->why(), "unfused is to be faster (measured 2026-11-22: own 30.0 us, unfused 20.0 us), but "))
        << op->why();
    EXPECT_TRUE(contains(op->why(), "NCCL runs on target cuda only")) << op->why();
    EXPECT_TRUE(op->close().ok());
    const auto no_path = ParallelGemm::create(world, Kind::kReduceScatter, small(), static_cast<Path>(99));
    EXPECT_EQ(no_path.status().message(), "Path is 99; allowed: own, unfused, best");
    const auto no_kind = ParallelGemm::create(world, static_cast<Kind>(99), small(), Path::kOwn);
    EXPECT_EQ(no_kind.status().code(), StatusCode::kInvalidArgument) << no_kind.status().to_string();
    const auto unfused = ParallelGemm::create(world, Kind::kReduceScatter, small(), Path::kUnfused);
    EXPECT_EQ(unfused.status().code(), StatusCode::kUnavailable);
    EXPECT_TRUE(contains(unfused.status().message(), "NCCL runs on target cuda only")) << unfused.status().message();
  });
  EXPECT_TRUE(check("gemm-rs", "path=best").outcome.pass);
}

TEST_P(ParallelGemmTest, TakesTheWidthOfTheTable) {
  if (GetParam() != TargetKind::kEmuSm90) GTEST_SKIP() << "CDNA's tiles have one width";
  keep(Path::kOwn, 64);
  on_worlds(kRanks, options(), [&](World& world) {
    auto op = ParallelGemm::create(world, Kind::kAllReduce, small());
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    EXPECT_TRUE(contains(op->plan(), "swap_ab_64")) << op->plan();
    EXPECT_TRUE(op->close().ok());
  });
  EXPECT_TRUE(check("gemm-ar", "path=best").outcome.pass);
  keep(Path::kOwn, 100);  // there is no such kernel
  on_worlds(kRanks, options(), [&](World& world) {
    auto op = ParallelGemm::create(world, Kind::kAllReduce, small());
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    EXPECT_TRUE(op->close().ok());
  });
}

TEST_P(ParallelGemmTest, RanksThatWereAskedForDifferentPathsAreTold) {
  on_worlds(kRanks, options(), [&](World& world) {
    const auto op =
        ParallelGemm::create(world, Kind::kReduceScatter, small(), world.rank() == 1 ? Path::kOwn : Path::kBest);
    EXPECT_EQ(op.status().code(), StatusCode::kMismatch);
    EXPECT_TRUE(contains(op.status().message(), "gemm-rs by path own")) << op.status().message();
    EXPECT_TRUE(contains(op.status().message(), "gemm-rs by path best")) << op.status().message();
    const auto kinds = ParallelGemm::create(world, world.rank() == 1 ? Kind::kAllGather : Kind::kAllReduce, small());
    EXPECT_EQ(kinds.status().code(), StatusCode::kMismatch);
    ParallelGemmDesc wrong = small();
    if (world.rank() == 2) wrong.k = 20;
    const Status refused = ParallelGemm::create(world, Kind::kAllReduce, wrong).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused.to_string();
    EXPECT_EQ(contains(refused.message(), "rank 2: "), world.rank() != 2) << refused.to_string();
    auto next = ParallelGemm::create(world, Kind::kReduceScatter, small());
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    EXPECT_TRUE(next->close().ok());
  });
}

TEST_P(ParallelGemmTest, AsksForTheAlignmentOfEitherPath) {
  on_worlds(kRanks, options(), [&](World& world) {
    auto op = ParallelGemm::create(world, Kind::kAllReduce, small(), Path::kOwn);
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    EXPECT_EQ(op->why(), "asked for");
    auto memory = DeviceBuffer::create(world.device(), 16384);
    ASSERT_TRUE(memory.ok());
    std::byte* const base = memory->as<std::byte>();
    EXPECT_TRUE(contains((*op)(base, base, nullptr, base + 16, {}).message(), "allowed: a multiple of 256"));
    EXPECT_TRUE(contains((*op)(base, nullptr, nullptr, base, {}).message(), "w is null"));
    EXPECT_TRUE(contains((*op)(base, base, nullptr, base, {}, base).message(), "all_x is given; allowed: null"));
    EXPECT_TRUE(op->close().ok());
    ParallelGemmDesc returning = small();
    returning.return_x = true;
    auto gather = ParallelGemm::create(world, Kind::kAllGather, returning);
    ASSERT_TRUE(gather.ok()) << gather.status().to_string();
    EXPECT_TRUE(contains((*gather)(base, base, nullptr, base, {}).message(), "all_x is null"));
    EXPECT_TRUE(contains((*gather)(base, base, nullptr, base, {}, base + 16).message(), "all_x is 0x"));
    EXPECT_TRUE(gather->close().ok());
  });
}

TEST_P(ParallelGemmTest, SaysHowMuchHeapItTakes) {
  const auto device = Device::open(GetParam(), 0);
  if (!device.ok()) GTEST_SKIP() << device.status().to_string();
  for (const Kind kind : parallel_gemm::kKinds) {
    const auto own = ParallelGemm::heap_bytes(**device, kRanks, kind, small(), Path::kOwn);
    const auto best = ParallelGemm::heap_bytes(**device, kRanks, kind, small());
    ASSERT_TRUE(own.ok() && best.ok());
    EXPECT_GT(*own, 0);
    EXPECT_GE(*best, *own);
    EXPECT_EQ(*ParallelGemm::heap_bytes(**device, kRanks, kind, small(), Path::kUnfused), 0);
  }
  ParallelGemmDesc wrong = small();
  wrong.k = 20;
  EXPECT_EQ(ParallelGemm::heap_bytes(**device, kRanks, Kind::kAllReduce, wrong).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace farwarp
