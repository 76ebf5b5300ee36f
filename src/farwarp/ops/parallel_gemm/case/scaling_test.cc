#include "farwarp/ops/parallel_gemm/case/scaling.h"

#include <gtest/gtest.h>

namespace farwarp::parallel_gemm {
namespace {

ParallelGemmDesc sizes(int m, int n, int k) {
  ParallelGemmDesc desc;
  desc.m = m;
  desc.n = n;
  desc.k = k;
  return desc;
}

void expect_scaled(Kind kind, const ParallelGemmDesc& desc, int m, int n, int k) {
  const ParallelGemmDesc scaled = scaled_down(kind, desc, 8);
  EXPECT_EQ(scaled.m, m);
  EXPECT_EQ(scaled.n, n);
  EXPECT_EQ(scaled.k, k);
  EXPECT_TRUE(check(kind, scaled, 8).ok()) << check(kind, scaled, 8).message();
}

// 29568/8 = 3696 is 57 steps and 48, or 28 tiles and 112 columns; 2880/8 = 360 is 5 steps and 40, or 2 tiles and 104
// columns.
TEST(Scaling, KeepsTilesStepsAndTails) {
  expect_scaled(Kind::kAllGather, sizes(8192, 29568, 8192), 1024, (256 + 112) * 8, 192);
  expect_scaled(Kind::kReduceScatter, sizes(8192, 8192, 29568), 1024, 256, (192 + 48) * 8);
  expect_scaled(Kind::kAllGather, sizes(2048, 2880, 2880), 1024, 360 * 8, 192);
  expect_scaled(Kind::kReduceScatter, sizes(2048, 2880, 2880), 1024, 256 + 64, (192 + 40) * 8);
  expect_scaled(Kind::kAllReduce, sizes(8192, 8192, 28672), 1024, 256, 192 * 8);
  // 4120/8 = 515 rows: 3 remain after whole tiles.
  expect_scaled(Kind::kReduceScatter, sizes(4120, 8192, 28672), 1024 + 24, 256, 192 * 8);
}

TEST(Scaling, KeepsWhatIsSmall) {
  expect_scaled(Kind::kAllGather, sizes(64, 18432, 7168), 64, 256 * 8, 192);
  expect_scaled(Kind::kReduceScatter, sizes(512, 4096, 12288), 512, 256, 192 * 8);
  expect_scaled(Kind::kAllReduce, sizes(1, 136, 256), 1, 136, 256);
  expect_scaled(Kind::kAllReduce, sizes(100, 136, 256), 100, 136, 256);
}

TEST(Scaling, LeavesTheRest) {
  ParallelGemmDesc desc = sizes(8192, 8192, 29568);
  desc.has_bias = true;
  desc.splits = 3;
  const ParallelGemmDesc scaled = scaled_down(Kind::kReduceScatter, desc, 8);
  EXPECT_TRUE(scaled.has_bias);
  EXPECT_EQ(scaled.splits, 3);
  const ParallelGemmDesc wrong = scaled_down(Kind::kReduceScatter, sizes(8192, 8192, 29570), 8);
  EXPECT_EQ(wrong.k, 29570) << "what check() refuses must stay refused";
}

}  // namespace
}  // namespace farwarp::parallel_gemm
