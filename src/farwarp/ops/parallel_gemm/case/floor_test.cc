#include "farwarp/ops/parallel_gemm/case/floor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "farwarp/machine/data_sheets.h"

namespace farwarp::parallel_gemm {
namespace {

Ceilings machine() {
  Ceilings ceilings;
  ceilings.source = "test";
  ceilings.link_all_store_gb_s = 100;
  ceilings.link_all_bulk_gb_s = 200;  // the faster way counts
  ceilings.hbm_read_gb_s = 4000;
  ceilings.mma_bf16_tflops_short = 800;
  return ceilings;
}

ParallelGemmDesc sizes(int m, int n, int k) {
  ParallelGemmDesc desc;
  desc.m = m;
  desc.n = n;
  desc.k = k;
  return desc;
}

TEST(ParallelFloor, CountsWhatOneRankDoes) {
  const ParallelGemmDesc desc = sizes(1024, 2048, 4096);
  for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllReduce})
    EXPECT_EQ(cost_of(kind, desc, 8).flops, 2.0 * 1024 * 2048 * 4096 / 8);
  EXPECT_EQ(cost_of(Kind::kAllGather, desc, 8).memory_bytes, 2.0 * (128 * 4096 + 256 * 4096 + 1024 * 256));
  EXPECT_EQ(cost_of(Kind::kReduceScatter, desc, 8).memory_bytes, 2.0 * (1024 * 512 + 2048 * 512 + 128 * 2048));
  EXPECT_EQ(cost_of(Kind::kAllReduce, desc, 8).memory_bytes, 2.0 * (1024 * 512 + 2048 * 512 + 1024 * 2048));
  EXPECT_EQ(cost_of(Kind::kAllGather, desc, 8).link_bytes, 7.0 * 128 * 4096 * 2);
  EXPECT_EQ(cost_of(Kind::kReduceScatter, desc, 8).link_bytes, 7.0 * 128 * 2048 * 2);
  EXPECT_EQ(cost_of(Kind::kAllReduce, desc, 8).link_bytes, 2 * 7.0 * 128 * 2048 * 2);
  EXPECT_EQ(cost_of(Kind::kAllReduce, sizes(1, 8, 24), 3).link_bytes, 22) << "21.3, rounded up";
  EXPECT_EQ(cost_of(Kind::kAllReduce, desc, 1).link_bytes, 0);
}

void expect_floor(Kind kind, const ParallelGemmDesc& desc, double us, const char* resource) {
  const harness::Floor floor = floor_of(kind, desc, 8, machine());
  EXPECT_NEAR(floor.us, us, us * 1e-12);
  EXPECT_EQ(floor.bound_by.rfind(resource, 0), 0u) << floor.bound_by;
}

TEST(ParallelFloor, TheSlowestResourceBounds) {
  // 2 * 8192 * 8192 * 32768 / 8 flops at 8e8 a microsecond.
  expect_floor(Kind::kReduceScatter, sizes(8192, 8192, 32768), 2.0 * 8192 * 8192 * 4096 / 8e8,
               "matrix unit (549.8 GFLOP");
  // 7/8 of y at 200 KB a microsecond.
  expect_floor(Kind::kReduceScatter, sizes(4096, 4096, 1024), 7.0 / 8 * 4096 * 4096 * 2 / 2e5,
               "link (29.4 MB at 200 GB/s)");
  expect_floor(Kind::kAllReduce, sizes(4096, 4096, 1024), 2 * 7.0 / 8 * 4096 * 4096 * 2 / 2e5, "link");
  // With one row, reading w is the floor.
  expect_floor(Kind::kAllReduce, sizes(1, 8192, 8192), 2.0 * (1024 + 8192 * 1024 + 8192) / 4e6, "memory");
}

// The AMD Developer Challenge 2025 states these for its cases whose links are the bound, for eight MI300X.
TEST(ParallelFloor, OfADataSheetIsTheChallengesSpeedOfLight) {
  const auto sheets = data_sheets();
  const auto sheet = std::find_if(sheets.begin(), sheets.end(), [](const auto& one) { return one.name == "MI300X"; });
  ASSERT_NE(sheet, sheets.end());
  const Ceilings ceilings = ceilings_of(*sheet, 8);
  EXPECT_NEAR(floor_of(Kind::kReduceScatter, sizes(8192, 4096, 14336), 8, ceilings).us, 131.07, 0.01);
  EXPECT_NEAR(floor_of(Kind::kReduceScatter, sizes(4096, 4096, 4096), 8, ceilings).us, 65.54, 0.01);
  EXPECT_NEAR(floor_of(Kind::kReduceScatter, sizes(2048, 2880, 2880), 8, ceilings).us, 23.04, 0.01);
  EXPECT_NEAR(floor_of(Kind::kAllGather, sizes(2048, 2880, 2880), 8, ceilings).us, 23.04, 0.01);
  EXPECT_NEAR(floor_of(Kind::kAllGather, sizes(4096, 4096, 4096), 8, ceilings).us, 65.54, 0.01);
}

TEST(ParallelFloor, IsUnknownWithoutCeilings) {
  EXPECT_EQ(floor_of(Kind::kAllGather, sizes(64, 64, 64), 8, Ceilings()).us, 0);
}

}  // namespace
}  // namespace farwarp::parallel_gemm
