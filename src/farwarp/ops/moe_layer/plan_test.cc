// The plan of a MoE layer: sizes that it takes, what it refuses with which messages, and which kernels it chooses.
#include "farwarp/ops/moe_layer/plan.h"

#include <gtest/gtest.h>

#include "farwarp/base/machine_shape_test.h"
#include "farwarp/ops/moe_layer/args.h"

namespace farwarp {
namespace {

MoeLayerPlan plan(const MoeLayerDesc& desc, int ranks) {
  const auto result = plan_moe_layer(desc, kH200, ranks);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *result : MoeLayerPlan{};
}
std::string error_of(const MoeLayerDesc& desc, int ranks = 1) {
  return plan_moe_layer(desc, kH200, ranks).status().message();
}
MoeLayerDesc small() {
  return {.num_experts = 8, .experts_per_token = 2, .hidden = 64, .intermediate = 64, .max_tokens = 4};
}

TEST(MoeLayerPlan, OfModels) {
  struct Model {
    int hidden, intermediate, experts, k;
  };
  for (const Model& model : {Model{7168, 2048, 256, 8}, Model{7168, 2048, 384, 8}, Model{4096, 1536, 128, 8},
                             Model{2048, 768, 128, 8}, Model{2880, 2880, 128, 4}, Model{5120, 1536, 160, 8}}) {
    for (const int ranks : {1, 2, 8}) {
      for (const int tokens : {1, 8, 32, 128, 1024, 4096}) {
        const MoeLayerPlan layer = plan({.num_experts = model.experts,
                                         .experts_per_token = model.k,
                                         .hidden = model.hidden,
                                         .intermediate = model.intermediate,
                                         .max_tokens = tokens},
                                        ranks);
        EXPECT_GE(layer.h_columns * layer.columns / 2, model.intermediate);
        EXPECT_GE(layer.y_columns * layer.columns, model.hidden);
        EXPECT_LE(layer.shared_bytes, kH200.traits.shared_bytes) << layer.to_string();
        EXPECT_EQ(layer.blocks, kH200.multiprocessors);
        EXPECT_LE(layer.max_slices, layer.blocks);
        EXPECT_EQ(layer.rows, std::int64_t{ranks} * tokens * model.k > 63 * model.experts ? 128 : 64);
        // Any spread of the entries over the experts fits.
        const std::int64_t entries = std::int64_t{ranks} * tokens * model.k;
        EXPECT_EQ(layer.max_rows, entries);
        EXPECT_GE(layer.row_tiles, std::min<std::int64_t>(entries, layer.max_local_experts));
        EXPECT_GE(layer.row_tiles * layer.rows, entries);
        EXPECT_GT(layer.max_parts, 0);
        EXPECT_EQ(layer.workspace.counters == layer.workspace.returns, ranks == 1);
      }
    }
  }
}

TEST(MoeLayerPlan, MostExpertsFitIntoSharedMemory) {
  for (const int rows : {64, 128}) {
    for (const int columns : {128, 256}) {
      if (rows == 64 && columns == 256) continue;
      MoeLayerDesc desc = small();
      desc.num_experts = moe_layer::kMaxLocalExperts;
      desc.tile_rows = rows;
      desc.tile_columns = columns;
      constexpr int kOfTraces = 128;
      EXPECT_LE(plan(desc, 1).shared_bytes + kOfTraces, kH200.traits.shared_bytes);
    }
  }
}

TEST(MoeLayerPlan, TilesHoldAnySpreadOfTheRows) {
  MoeLayerDesc desc = small();
  desc.max_tokens = 100;
  desc.tile_rows = 64;
  EXPECT_EQ(plan(desc, 1).row_tiles, 200 / 64 + 8);
  desc.max_tokens = 2;
  EXPECT_EQ(plan(desc, 1).row_tiles, 4);  // no more tiles than rows
  desc.max_rows = 3;
  EXPECT_EQ(plan(desc, 1).row_tiles, 3);
}

TEST(MoeLayerPlan, PartsOfTheWorkspaceAreApart) {
  MoeLayerDesc desc = small();
  for (const int ranks : {1, 8}) {
    const MoeLayerWorkspace workspace = plan(desc, ranks).workspace;
    const std::int64_t offsets[] = {workspace.headers, workspace.entries, workspace.row_flags, workspace.rows,
                                    workspace.counts,  workspace.row_ids, workspace.positions, workspace.h,
                                    workspace.y,       workspace.bytes};
    for (std::size_t i = 1; i < std::size(offsets); ++i) {
      EXPECT_GE(offsets[i], offsets[i - 1]);
      EXPECT_EQ(offsets[i] % 1024, 0);
    }
  }
}

TEST(MoeLayerPlan, RefusesInWords) {
  const auto with = [](const auto& change) {
    MoeLayerDesc desc = small();
    change(desc);
    return desc;
  };
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.num_experts = 385; })),
            "MoeLayerDesc.num_experts is 385; allowed: 1 (ranks) to 384");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.num_experts = 3; }), 4),
            "MoeLayerDesc.num_experts is 3; allowed: 4 (ranks) to 1536");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.experts_per_token = 33; })),
            "MoeLayerDesc.experts_per_token is 33; allowed: 1 to 32");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.hidden = 20; })),
            "MoeLayerDesc.hidden is 20; allowed: a multiple of 8 up to 1048576");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.intermediate = 0; })),
            "MoeLayerDesc.intermediate is 0; allowed: a multiple of 8 up to 1048576");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.max_tokens = 65536; })),
            "MoeLayerDesc.max_tokens is 65536; allowed: 1 to 65535");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.dtype = DType::kF32; })),
            "MoeLayerDesc.dtype is fp32; allowed: bf16, fp16");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.index_type = DType::kBf16; })),
            "MoeLayerDesc.index_type is bf16; allowed: int32, int64");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.activation = Activation::kNone; })),
            "MoeLayerDesc.activation is 0; allowed: kSwiGlu, kClampedSwiGlu");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.max_rows = 9; })),
            "MoeLayerDesc.max_rows is 9; allowed: 0 (the worst case) to 8");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.max_sms = -1; })),
            "MoeLayerDesc.max_sms is -1; allowed: 0 (the plan's choice) or more");
  EXPECT_EQ(error_of(with([](MoeLayerDesc& d) { d.tile_rows = 96; })),
            "MoeLayerDesc.tile_rows is 96; allowed: 0 (the plan's choice), 64, 128");
  EXPECT_EQ(plan_moe_layer(small(), kMi300x, 1).status().code(), StatusCode::kUnavailable);
  MoeLayerDesc largest = small();
  largest.num_experts = 384;
  largest.experts_per_token = 32;
  largest.max_tokens = 65535;
  EXPECT_EQ(error_of(largest, 8), "");
}

}  // namespace
}  // namespace farwarp
