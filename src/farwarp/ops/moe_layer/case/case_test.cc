// moe_layer through the harness: every kernel, odd sizes, every routing, ranks ahead of others, faults, and what is
// refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "farwarp/harness/case_test_fixture.h"
#include "farwarp/ops/moe_layer/variants.h"

namespace farwarp::harness {
namespace {

CaseResult run(const std::string& settings, int ranks = 1, TargetKind target = TargetKind::kEmuSm90,
               const std::string& fault = "") {
  return run_case(
      TestedCase{.op = "moe-layer", .settings = settings, .target = target, .ranks = ranks, .fault = fault});
}
void expect_pass(const std::string& settings, int ranks, int schedules = 1, int calls = 2) {
  harness::expect_pass({.op = "moe-layer",
                        .settings = settings,
                        .target = TargetKind::kEmuSm90,
                        .ranks = ranks,
                        .schedules = schedules,
                        .calls = calls});
}

std::string settings_of(const moe_layer::Variant& kernel) {
  return fmt::format(",tile_rows={},tile_columns={},dtype={}", kernel.rows, kernel.columns, name_of(kernel.dtype));
}

TEST(MoeLayerCases, EveryKernel) {
  for (const moe_layer::Variant& kernel : moe_layer::kKernels) {
    for (const int ranks : {1, 2}) {
      expect_pass("num_experts=6,max_num_tokens=60,unfused=1" + settings_of(kernel), ranks);
      expect_pass(
          "num_experts=3,experts_per_token=3,hidden_dim=200,intermediate=72,max_num_tokens=90,has_bias=1,"
          "activation=clamped_swiglu" +
              settings_of(kernel),
          ranks);
    }
  }
}

// gpt-oss's hidden size, sizes that no tile divides, 5 experts on 3 ranks, and the smallest.
TEST(MoeLayerCases, OddSizes) {
  expect_pass("num_experts=5,experts_per_token=3,hidden_dim=2880,intermediate=72,max_num_tokens=9,has_bias=1", 3);
  expect_pass("num_experts=5,experts_per_token=2,hidden_dim=1016,intermediate=200,max_num_tokens=9", 3);
  expect_pass("num_experts=7,experts_per_token=2,hidden_dim=64,intermediate=768,max_num_tokens=9", 2);
  expect_pass("num_experts=8,experts_per_token=1,hidden_dim=8,intermediate=8,max_num_tokens=1", 8);
  expect_pass("num_experts=40,experts_per_token=32,hidden_dim=72,intermediate=40,max_num_tokens=3", 2);
  expect_pass("num_experts=384,experts_per_token=8,hidden_dim=16,intermediate=16,max_num_tokens=20", 1);
}

TEST(MoeLayerCases, EveryRouting) {
  for (const char* routing : {"uniform", "zipf", "repeated", "one_expert", "one_rank", "skipped", "partial"}) {
    for (const int ranks : {1, 4}) {
      expect_pass(fmt::format("routing={},hidden_dim=72,intermediate=64,max_num_tokens=70,unfused=1", routing), ranks);
      expect_pass(fmt::format("routing={},hidden_dim=72,intermediate=40,index=int64,tokens=empty_ranks", routing),
                  ranks, 1, 4);
    }
  }
}

// More than one block counts entries.
TEST(MoeLayerCases, Slices) {
  expect_pass("num_experts=40,experts_per_token=8,hidden_dim=72,intermediate=40,max_num_tokens=300,tokens=full", 1);
  expect_pass("num_experts=40,experts_per_token=8,hidden_dim=72,intermediate=40,max_num_tokens=150,max_sms=3", 3);
}

TEST(MoeLayerCases, RandomNumbers) {
  for (const int ranks : {1, 3})
    expect_pass("num_experts=9,hidden_dim=520,intermediate=264,has_bias=1,inputs=normal", ranks, 1, 3);
}

TEST(MoeLayerCases, AsManyRanksAsThereAre) {
  for (int ranks = 2; ranks <= 8; ++ranks)
    expect_pass("num_experts=19,hidden_dim=136,intermediate=72,max_num_tokens=12", ranks, 1, 3);
}

TEST(MoeLayerCases, ManySchedules) {
  const char* const sizes = "num_experts=7,experts_per_token=3,hidden_dim=136,intermediate=72,max_sms=2";
  expect_pass(fmt::format("{},max_num_tokens=12,burst=4,delay_us=20", sizes), 3, 60, 4);
  expect_pass(fmt::format("{},max_num_tokens=70,tile_rows=128,routing=zipf", sizes), 2, 40);
  expect_pass(fmt::format("{},max_num_tokens=90,tile_rows=128,tile_columns=256", sizes), 1, 20);
}

TEST(MoeLayerCases, Graphs) {
  expect_pass("graph=1,count=device", 2, 1, 6);
  expect_pass("graph=1,tokens=full,routing=zipf", 1, 1, 6);
}

TEST(MoeLayerCases, FaultsAreFound) {
  const CaseResult dropped = run("tokens=full,routing=repeated", 3, TargetKind::kEmuSm90, "drop_put:2");
  EXPECT_FALSE(dropped.outcome.pass);
  EXPECT_NE(dropped.outcome.detail.find("row of x"), std::string::npos) << dropped.outcome.detail;
  EXPECT_NE(dropped.outcome.detail.find("next call was right"), std::string::npos) << dropped.outcome.detail;
  EXPECT_TRUE(run("tokens=full", 3, TargetKind::kEmuSm90, "delay:1:2").outcome.pass);
  EXPECT_FALSE(run("tokens=full", 3, TargetKind::kEmuSm90, "kill:1").outcome.pass);
}

TEST(MoeLayerCases, Capacity) {
  expect_pass("tokens=full,max_num_tokens=20,max_rows=80", 1);
  const CaseResult full = run("tokens=full,max_num_tokens=20,max_rows=79");
  EXPECT_EQ(full.outcome.status.code(), StatusCode::kCapacity) << full.outcome.status.to_string();
  EXPECT_NE(full.outcome.status.message().find("max_rows"), std::string::npos) << full.outcome.status.message();
}

TEST(MoeLayerCases, RefusesInWords) {
  for (const auto& [settings, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"hidden_dim=12", "MoeLayerDesc.hidden is 12"},
           {"intermediate=100", "MoeLayerDesc.intermediate is 100"},
           {"experts_per_token=17", "experts_per_token is '17'"},
           {"max_rows=129", "MoeLayerDesc.max_rows is 129; allowed: 0 (the worst case) to 128"},
           {"tile_rows=32", "MoeLayerDesc.tile_rows is 32"},
           {"tile_rows=64,tile_columns=256", "MoeLayerDesc.tile_columns is 256"},
           {"num_experts=385,max_num_tokens=1", "MoeLayerDesc.num_experts is 385; allowed: 1 (ranks) to 384"},
           {"activation=clamped_swiglu,inputs=exact", "inputs is 'exact'"},
           {"intermediate=72,unfused=1", "unfused is '1'"},
           {"graph=1", "graph is '1'"}}) {
    const CaseResult refused = run(settings);
    EXPECT_FALSE(refused.outcome.pass) << settings;
    EXPECT_NE(refused.outcome.detail.find(part), std::string::npos) << refused.outcome.detail;
  }
  const CaseResult uneven = run("num_experts=16,unfused=1", 3);
  EXPECT_NE(uneven.outcome.detail.find("unfused is 1"), std::string::npos) << uneven.outcome.detail;
  const CaseResult few = run("num_experts=2,experts_per_token=2", 3);
  EXPECT_NE(few.outcome.detail.find("MoeLayerDesc.num_experts is 2; allowed: 3 (ranks)"), std::string::npos)
      << few.outcome.detail;
  const CaseResult elsewhere = run("dtype=bf16", 1, TargetKind::kEmuGfx942);
  EXPECT_NE(elsewhere.outcome.detail.find("moe_layer has kernels for Hopper"), std::string::npos)
      << elsewhere.outcome.detail;
}

}  // namespace
}  // namespace farwarp::harness
