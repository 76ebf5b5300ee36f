// The plan of gemm: shapes that it accepts, what it refuses with which messages, and that it never asks for more than
// the machine has.
#include "farwarp/ops/gemm/plan.h"

#include <gtest/gtest.h>

#include "farwarp/base/machine_shape_test.h"
#include "farwarp/ops/gemm/args.h"

namespace farwarp {
namespace {

std::string error_of(const GemmDesc& desc) {
  const auto plan = plan_gemm(desc, kH200);
  return plan.ok() ? "" : plan.status().message();
}

TEST(GemmPlan, CoversEveryShapeOfTheChallengeAndOddOnes) {
  for (const int m : {1, 8, 63, 64, 65, 512, 2048, 4096, 8192}) {
    for (const int n : {8, 40, 360, 1536, 2304, 3696, 8192}) {
      for (const int k : {8, 24, 360, 2880, 8192}) {
        const auto plan = plan_gemm({.m = m, .n = n, .k = k}, kH200);
        ASSERT_TRUE(plan.ok()) << m << " " << n << " " << k << ": " << plan.status().message();
        const int rows = plan->swap_ab ? n : m, columns = plan->swap_ab ? m : n;
        EXPECT_GE(plan->tile_row_count * plan->rows, rows);
        EXPECT_GE(plan->tile_column_count * plan->columns, columns);
        EXPECT_LT((plan->tile_row_count - 1) * plan->rows, rows);
        EXPECT_LT((plan->tile_column_count - 1) * plan->columns, columns);
        EXPECT_GE(plan->blocks, 1);
        EXPECT_LE(plan->blocks, 132);
        EXPECT_LE(plan->shared_bytes, kH200.traits.shared_bytes);
        EXPECT_LE(plan->splits, (k + 63) / 64);
        EXPECT_EQ(plan->swap_ab, m <= 64);
        EXPECT_TRUE(!plan->swap_ab || plan->tile_column_count == 1);
        EXPECT_EQ(plan->cluster, plan->splits);
        EXPECT_EQ(plan->blocks % plan->cluster, 0);
        EXPECT_EQ(plan->workspace_bytes, 0);
      }
    }
  }
}

TEST(GemmPlan, FillsTheMachineWhereThereIsLittle) {
  // Without splits, 18 tiles would leave 114 of 132 multiprocessors idle.
  const auto plan = plan_gemm({.m = 64, .n = 2304, .k = 7168}, kH200);
  ASSERT_TRUE(plan.ok());
  EXPECT_GE(plan->blocks, 72) << plan->to_string();
}

TEST(GemmPlan, SplitsThroughMemoryWhereThereAreNoClusters) {
  const auto plan = plan_gemm({.m = 64, .n = 2304, .k = 7168}, kMi300x);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_GT(plan->splits, 1);
  EXPECT_EQ(plan->cluster, 1);
  EXPECT_GT(plan->workspace_bytes, plan->partial_sums_bytes);
  EXPECT_EQ(plan_gemm({.m = 64, .n = 64, .k = 64, .tile_rows = 256}, kMi300x).status().message(),
            "GemmDesc.tile_rows is 256; allowed: 0 (the plan's choice) or 64");
}

TEST(GemmPlan, TakesWhatIsAsked) {
  const auto plan = plan_gemm({.m = 512, .n = 128, .k = 512, .max_sms = 9, .tile_columns = 128, .splits = 2}, kH200);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->columns, 128);
  EXPECT_EQ(plan->splits, 2);
  EXPECT_EQ(plan->blocks, 8);
  const auto tall = plan_gemm({.m = 512, .n = 512, .k = 512, .max_sms = 3, .tile_rows = 256}, kH200);
  ASSERT_TRUE(tall.ok()) << tall.status().message();
  EXPECT_EQ(tall->kernel, "gemm_bf16_tall_192");
  EXPECT_EQ(tall->blocks, 3);
}

TEST(GemmPlan, NamesWhatItRefuses) {
  EXPECT_EQ(error_of({.m = 0, .n = 8, .k = 8}), "GemmDesc.m is 0; allowed: 1 to 16777216");
  EXPECT_EQ(error_of({.m = 1, .n = 12, .k = 8}), "GemmDesc.n is 12; allowed: a multiple of 8 up to 16777216");
  EXPECT_EQ(error_of({.m = 1, .n = 8, .k = 0}), "GemmDesc.k is 0; allowed: a multiple of 8 up to 16777216");
  EXPECT_EQ(error_of({.m = 1, .n = 8, .k = 8, .dtype = DType::kF32}), "GemmDesc.dtype is fp32; allowed: bf16, fp16");
  EXPECT_EQ(error_of({.m = 1, .n = 8, .k = 8, .dtype = static_cast<DType>(99)}),
            "GemmDesc.dtype is 99; allowed: bf16, fp16");
  EXPECT_EQ(error_of({.m = 1, .n = 8, .k = 64, .x_pitch = 56}),
            "GemmDesc.x_pitch is 56; allowed: 0, or a multiple of 8 from 64 to 4294967296");
  EXPECT_EQ(error_of({.m = 1, .n = 8, .k = 64, .y_pitch = 12}),
            "GemmDesc.y_pitch is 12; allowed: 0, or a multiple of 8 from 8 to 4294967296");
  EXPECT_NE(error_of({.m = 1 << 24, .n = 1 << 24, .k = 8}).find("2^31 tiles"), std::string::npos);
  EXPECT_EQ(error_of({.m = 1, .n = 8, .k = 8, .max_sms = -1}), "GemmDesc.max_sms is -1; allowed: 0 (all) or more");
  EXPECT_EQ(
      error_of({.m = 100, .n = 8, .k = 64, .tile_columns = 48}),
      "GemmDesc.tile_columns is 48; allowed: 0 (the plan's choice), 64, 96, 128, 160, 192, 224, 256 with m = 100");
  EXPECT_EQ(
      error_of({.m = 100, .n = 8, .k = 64, .splits = 2}),
      "GemmDesc.splits is 2; allowed: 0 (the plan's choice), 1, or 2 with tile_columns up to 128 and tile_rows 128, if "
      "k has as many steps of 64 and all tiles' blocks are at most 132");
  EXPECT_EQ(
      error_of({.m = 64, .n = 4096, .k = 640, .max_sms = 100, .splits = 4}),
      "GemmDesc.splits is 4; allowed: 0 (the plan's choice), 1, or 2 or 4 with tile_columns up to 128 and tile_rows "
      "128, if k has as many steps of 64 and all tiles' blocks are at most 100");
  EXPECT_EQ(
      error_of({.m = 100, .n = 8, .k = 64, .tile_rows = 64}),
      "GemmDesc.tile_rows is 64; allowed: 0 (the plan's choice), 128, or 256 with m above 64 and tile_columns 192");
  EXPECT_EQ(
      error_of({.m = 10, .n = 8, .k = 64, .tile_rows = 256}),
      "GemmDesc.tile_rows is 256; allowed: 0 (the plan's choice), 128, or 256 with m above 64 and tile_columns 192");
  EXPECT_EQ(error_of({.m = 1, .n = 8, .k = 8, .splits = 17}),
            "GemmDesc.splits is 17; allowed: 0 (the plan's choice) to 16");
}

}  // namespace
}  // namespace farwarp
