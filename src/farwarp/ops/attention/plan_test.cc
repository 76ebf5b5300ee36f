#include "farwarp/ops/attention/plan.h"

#include <gtest/gtest.h>

#include <string>

namespace farwarp {
namespace {

AttentionDesc desc_of(int batch, int heads, int kv_heads, int head_dim, int queries, int keys) {
  AttentionDesc desc;
  desc.batch = batch;
  desc.heads = heads;
  desc.kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.max_queries = queries;
  desc.max_keys = keys;
  return desc;
}

TEST(AttentionPlanTest, CdnaLaunchesAMultipleOfTheXcds) {
  const auto blocks = [](int heads, int max_sms) {
    AttentionDesc desc = desc_of(1, heads, 1, 128, 2048, 2048);
    desc.max_sms = max_sms;
    return plan_attention(desc, {TargetKind::kHip, traits_of(TargetKind::kHip), 304, 8})->blocks;
  };
  EXPECT_EQ(blocks(64, 0), 304);
  EXPECT_EQ(blocks(64, 100), 96);
  EXPECT_EQ(blocks(64, 3), 3);
  EXPECT_EQ(blocks(5, 0), 40);
}

TEST(AttentionPlanTest, RefusesByName) {
  const MachineShape shape{TargetKind::kEmuSm90, traits_of(TargetKind::kEmuSm90), 8, 1};
  const auto message = [&](auto change) {
    AttentionDesc desc = desc_of(1, 4, 2, 64, 16, 16);
    change(desc);
    return plan_attention(desc, shape).status().message();
  };
  EXPECT_EQ(message([](AttentionDesc&) {}), "");
  EXPECT_NE(message([](AttentionDesc& d) { d.kv_heads = 3; }).find("kv_heads is 3; allowed: a divisor of heads (4)"),
            std::string::npos);
  EXPECT_NE(message([](AttentionDesc& d) { d.head_dim = 264; }).find("head_dim is 264"), std::string::npos);
  EXPECT_EQ(message([](AttentionDesc& d) { d.softcap = 30; }), "");
  EXPECT_NE(
      message([](AttentionDesc& d) { d.softcap = -1; }).find("softcap is -1; allowed: 0 (none), or 0.001 to 1e+06"),
      std::string::npos);
  EXPECT_NE(
      message([](AttentionDesc& d) { d.softcap = 1, d.scale = 1e31f; }).find("allowed: up to 1e+30 * softcap (1)"),
      std::string::npos);
  EXPECT_NE(message([](AttentionDesc& d) { d.page_size = 24; }).find("page_size is 24"), std::string::npos);
  const auto on_cdna = [](auto change) {
    AttentionDesc desc = desc_of(1, 4, 2, 64, 16, 16);
    change(desc);
    return plan_attention(desc, {TargetKind::kHip, traits_of(TargetKind::kHip), 304, 8}).status().message();
  };
  EXPECT_EQ(on_cdna([](AttentionDesc&) {}), "");
  EXPECT_NE(on_cdna([](AttentionDesc& d) { d.head_dim = 136; }).find("up to 128 here"), std::string::npos);
  EXPECT_NE(on_cdna([](AttentionDesc& d) { d.softcap = 30; }).find("softcap is 30; allowed: 0 here"),
            std::string::npos);
  EXPECT_NE(on_cdna([](AttentionDesc& d) { d.out_pitch = 1 << 25; }).find("at most 16777216 here"), std::string::npos);
  EXPECT_NE(message([](AttentionDesc& d) { d.scale = -1; }).find("scale is -1"), std::string::npos);
}

}  // namespace
}  // namespace farwarp
