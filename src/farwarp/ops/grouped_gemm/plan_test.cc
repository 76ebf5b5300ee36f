// The plan of grouped_gemm: sizes that it takes, what it refuses with which messages, and which kernels it chooses.
#include "farwarp/ops/grouped_gemm/plan.h"

#include <gtest/gtest.h>

#include "farwarp/base/machine_shape_test.h"

namespace farwarp {
namespace {

GroupedGemmPlan plan(const GroupedGemmDesc& desc) {
  const auto result = plan_grouped_gemm(desc, kH200);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *result : GroupedGemmPlan{};
}
std::string error_of(const GroupedGemmDesc& desc) { return plan_grouped_gemm(desc, kH200).status().message(); }

TEST(GroupedGemmPlan, OfModels) {
  struct Model {
    int hidden, intermediate, experts;
  };
  for (const Model& model : {Model{7168, 2048, 256}, Model{7168, 2048, 384}, Model{4096, 1536, 128},
                             Model{2048, 768, 128}, Model{2880, 2880, 128}, Model{5120, 1536, 160}}) {
    for (const GemmScaling scaling : {GemmScaling::kNone, GemmScaling::kBlocks}) {
      for (const int rows : {8, 4096, 65536}) {
        const GroupedGemmPlan first = plan({.groups = model.experts,
                                            .max_rows = rows,
                                            .n = model.intermediate,
                                            .k = model.hidden,
                                            .scaling = scaling,
                                            .activation = Activation::kSwiGlu});
        EXPECT_GE(first.column_tiles * first.columns / 2, model.intermediate);
        EXPECT_LE(first.shared_bytes, kH200.traits.shared_bytes) << first.to_string();
        EXPECT_LE(first.blocks, kH200.multiprocessors);
        const GroupedGemmPlan second = plan({.groups = model.experts,
                                             .max_rows = rows,
                                             .n = model.hidden,
                                             .k = model.intermediate,
                                             .scaling = scaling});
        EXPECT_EQ(second.rows, rows / model.experts > 64 ? 128 : 64) << second.to_string();
      }
    }
  }
}

TEST(GroupedGemmPlan, MostGroupsFitIntoSharedMemory) {
  for (const int rows : {64, 128}) {
    for (const int columns : {128, 256}) {
      if (rows == 64 && columns == 256) continue;
      const GroupedGemmPlan most =
          plan({.groups = 480, .max_rows = 4096, .n = 512, .k = 512, .tile_rows = rows, .tile_columns = columns});
      constexpr int kTraceCounters = 128;  // bytes
      EXPECT_LE(most.shared_bytes + kTraceCounters, kH200.traits.shared_bytes) << most.to_string();
    }
  }
}

TEST(GroupedGemmPlan, ReckonsWithTheExpectedRows) {
  const GroupedGemmDesc desc{.groups = 8, .max_rows = 512, .n = 512, .k = 512, .group_rows = GroupRows::kCounts};
  EXPECT_EQ(plan(desc).rows, 128);
  GroupedGemmDesc few = desc;
  few.expected_rows = 9;
  EXPECT_EQ(plan(few).rows, 64);
  GroupedGemmDesc offsets = desc;
  offsets.group_rows = GroupRows::kOffsets;
  EXPECT_EQ(plan(offsets).rows, 64) << "512 rows of 8 groups";
}

TEST(GroupedGemmPlan, RefusesInWords) {
  const GroupedGemmDesc good{.groups = 4, .max_rows = 100, .n = 64, .k = 64};
  const auto with = [&](auto change) {
    GroupedGemmDesc desc = good;
    change(desc);
    return error_of(desc);
  };
  EXPECT_EQ(with([](auto& desc) { desc.groups = 481; }), "GroupedGemmDesc.groups is 481; allowed: 1 to 480");
  EXPECT_EQ(with([](auto& desc) { desc.max_rows = 0; }), "GroupedGemmDesc.max_rows is 0; allowed: 1 to 16777216");
  EXPECT_EQ(with([](auto& desc) { desc.scaling = GemmScaling::kRows; }),
            "GroupedGemmDesc.scaling is 2; allowed: kNone, kBlocks");
  EXPECT_EQ(with([](auto& desc) { desc.dtype = DType::kF32; }), "GroupedGemmDesc.dtype is fp32; allowed: bf16, fp16");
  EXPECT_EQ(with([](auto& desc) { desc.group_rows = static_cast<GroupRows>(2); }),
            "GroupedGemmDesc.group_rows is 2; allowed: kOffsets, kCounts");
  EXPECT_EQ(with([](auto& desc) { desc.activation = static_cast<Activation>(3); }),
            "GroupedGemmDesc.activation is 3; allowed: kNone, kSwiGlu, kClampedSwiGlu");
  EXPECT_EQ(with([](auto& desc) { desc.max_sms = -1; }),
            "GroupedGemmDesc.max_sms is -1; allowed: 0 (the plan's choice) or more");
  EXPECT_NE(with([](auto& desc) { desc.n = 1 << 24, desc.groups = 480; }).find("GroupedGemmDesc.n is"),
            std::string::npos);
  EXPECT_EQ(plan_grouped_gemm(good, kMi300x).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace farwarp
