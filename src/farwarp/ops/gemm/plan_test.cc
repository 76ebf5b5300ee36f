// The plan of gemm: shapes that it accepts, what it refuses with which messages, and that it never asks for more than
// the machine has.
#include "farwarp/ops/gemm/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

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
        const int x_tiles = plan->swap_ab ? plan->tile_column_count : plan->tile_row_count;
        const int w_tiles = plan->swap_ab ? plan->tile_row_count : plan->tile_column_count;
        const int w_rows = plan->swap_ab ? plan->rows : plan->columns;
        EXPECT_LE(plan->x_rows, plan->swap_ab ? plan->columns : plan->rows);
        EXPECT_GE(x_tiles * plan->x_rows, m);
        EXPECT_LT(x_tiles * plan->x_rows - m, x_tiles) << "tiles share the rows of x evenly";
        EXPECT_GE(w_tiles * w_rows, n);
        EXPECT_LT((w_tiles - 1) * w_rows, n);
        EXPECT_GE(plan->blocks, 1);
        EXPECT_LE(plan->blocks, 132);
        EXPECT_LE(plan->shared_bytes, kH200.traits.shared_bytes);
        EXPECT_LE(plan->splits, (k + 63) / 64);
        EXPECT_EQ(plan->cluster, plan->splits);
        EXPECT_EQ(plan->blocks % plan->cluster, 0);
        EXPECT_EQ(plan->workspace_bytes, 0);
      }
    }
  }
}

TEST(GemmPlan, OfE4m3HasStepsOf128) {
  for (const GemmScaling scaling : {GemmScaling::kBlocks, GemmScaling::kRows, GemmScaling::kTensor}) {
    const auto plan = plan_gemm({.m = 300, .n = 4096, .k = 2000, .scaling = scaling}, kH200);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->steps, 16);
    EXPECT_EQ(plan->elements_per_word(), 2);
    EXPECT_EQ(plan->kernel.find("gemm_fp8_bf16_"), 0u) << plan->kernel;
    EXPECT_EQ(128 % plan->columns, 0) << "all columns of a tile share their scale of w";
  }
  EXPECT_EQ(error_of({.m = 8, .n = 64, .k = 72, .scaling = GemmScaling::kRows}),
            "GemmDesc.k is 72; allowed: a multiple of 16 up to 16777216");
  EXPECT_EQ(error_of({.m = 8, .n = 64, .k = 64, .scaling = static_cast<GemmScaling>(9)}),
            "GemmDesc.scaling is 9; allowed: kNone, kBlocks, kRows, kTensor");
  EXPECT_EQ(error_of({.m = 8, .n = 64, .k = 64, .scaling = GemmScaling::kTensor, .x_scale_by_column = true}),
            "GemmDesc.x_scale_by_column is 1; allowed: 0, or 1 with scaling blocks");
  EXPECT_NE(error_of({.m = 8, .n = 64, .k = 64, .scaling = GemmScaling::kRows, .w_pitch = 72}).find("w_pitch is 72"),
            std::string::npos);
}

TEST(GemmPlan, FillsTheMachineWhereThereIsLittle) {
  // Without splits, 18 tiles would leave 114 of 132 multiprocessors idle.
  const auto plan = plan_gemm({.m = 64, .n = 2304, .k = 7168}, kH200);
  ASSERT_TRUE(plan.ok());
  EXPECT_GE(plan->blocks, 72) << plan->to_string();
}

// 100 rows fill most of a tile of 104. With tiles of 128 rows of x, boxes would have 84 rows outside x.
TEST(GemmPlan, HasTilesThatFitTheRows) {
  for (const int m : {1, 65, 129, 257, 300, 513}) {
    const auto plan = plan_gemm({.m = m, .n = 5120, .k = 8192}, kH200);
    ASSERT_TRUE(plan.ok());
    const int room = plan->swap_ab ? plan->columns : plan->rows;
    EXPECT_LE(room, std::max(64, plan->x_rows * 3 / 2)) << plan->to_string();
  }
}

TEST(GemmPlan, SplitsThroughMemoryWhereThereAreNoClusters) {
  const auto plan = plan_gemm({.m = 64, .n = 2304, .k = 7168}, kMi300x);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_GT(plan->splits, 1);
  EXPECT_EQ(plan->cluster, 1);
  EXPECT_GT(plan->workspace_bytes, plan->partial_sums_bytes);
  EXPECT_EQ(plan_gemm({.m = 64, .n = 64, .k = 64, .tile_rows = 256}, kMi300x).status().message(),
            "GemmDesc.tile_rows is 256; allowed: 0 (the plan's choice) or 64");
  EXPECT_EQ(plan_gemm({.m = 64, .n = 64, .k = 64, .swap_ab = tile::SwapAb::kYes}, kMi300x).status().message(),
            "GemmDesc.swap_ab is yes; allowed: auto, no (kernels of CDNA do not swap)");
}

TEST(GemmPlan, TakesWhatIsAsked) {
  const auto plan = plan_gemm({.m = 512, .n = 128, .k = 512, .max_sms = 9, .tile_columns = 128, .splits = 2}, kH200);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->columns, 128);
  EXPECT_EQ(plan->splits, 2);
  EXPECT_EQ(plan->blocks, 8);
  const auto tall =
      plan_gemm({.m = 300, .n = 512, .k = 512, .max_sms = 3, .swap_ab = tile::SwapAb::kYes, .tile_rows = 256}, kH200);
  ASSERT_TRUE(tall.ok()) << tall.status().message();
  EXPECT_EQ(tall->kernel, "gemm_bf16_swap_ab_256x104");
  EXPECT_EQ(tall->x_rows, 100);
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
  EXPECT_EQ(error_of({.m = 100, .n = 8, .k = 64, .tile_columns = 40}),
            "GemmDesc.tile_columns is 40; allowed: 0 (the plan's choice), 16, 32, 48, 64, 80, 96, 104, 112, 128, 152, "
            "160, 192, 224, 256");
  EXPECT_EQ(error_of({.m = 100, .n = 8, .k = 64, .swap_ab = tile::SwapAb::kYes, .tile_columns = 96}),
            "GemmDesc.tile_columns is 96; allowed: 0 (the plan's choice), 16, 32, 48, 64, 80, 104, 152");
  EXPECT_EQ(error_of({.m = 100, .n = 8, .k = 64, .splits = 2}),
            "GemmDesc.splits is 2; allowed: 0 (the plan's choice), 1; with tile_rows 128 also 2 with tile_columns up "
            "to 128, and 4 with tile_columns 128, or with swap_ab 16 to 80; if k has as many steps of 64 and all "
            "tiles' blocks are at most 132");
  EXPECT_NE(error_of({.m = 64, .n = 4096, .k = 640, .max_sms = 100, .splits = 4}).find("blocks are at most 100"),
            std::string::npos);
  EXPECT_EQ(error_of({.m = 100, .n = 8, .k = 64, .tile_rows = 96}),
            "GemmDesc.tile_rows is 96; allowed: 0 (the plan's choice), 64, 128, 256");
  EXPECT_EQ(error_of({.m = 100, .n = 8, .k = 64, .tile_rows = 256, .tile_columns = 64}),
            "GemmDesc.tile_rows is 256; allowed: 0 (the plan's choice), 64, 128 with tile_columns = 64");
  for (const auto wrong : {static_cast<tile::SwapAb>(9), tile::SwapAb::kFewRows})
    EXPECT_EQ(error_of({.m = 1, .n = 8, .k = 8, .swap_ab = wrong}),
              fmt::format("GemmDesc.swap_ab is {}; allowed: kAuto, kNo, kYes", static_cast<int>(wrong)));
  EXPECT_EQ(error_of({.m = 1, .n = 8, .k = 8, .splits = 17}),
            "GemmDesc.splits is 17; allowed: 0 (the plan's choice) to 16");
}

}  // namespace
}  // namespace farwarp
