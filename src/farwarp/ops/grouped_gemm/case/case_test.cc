// grouped_gemm through the harness: every kernel, odd sizes, groups without rows, and what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "farwarp/harness/case_test_fixture.h"
#include "farwarp/ops/grouped_gemm/variants.h"

namespace farwarp::harness {
namespace {

CaseResult run(const std::string& settings, TargetKind target = TargetKind::kEmuSm90) {
  return run_case(TestedCase{.op = "grouped-gemm", .settings = settings, .target = target});
}
void expect_pass(const std::string& settings, int schedules = 1, int calls = 2) {
  harness::expect_pass({.op = "grouped-gemm",
                        .settings = settings,
                        .target = TargetKind::kEmuSm90,
                        .schedules = schedules,
                        .calls = calls});
}

std::string settings_of(const grouped_gemm::Variant& kernel) {
  return fmt::format(",tile_rows={},tile_columns={},dtype={},scaling={}", kernel.rows, kernel.columns,
                     name_of(kernel.dtype), kernel.fp8 ? "blocks" : "none");
}

TEST(GroupedGemmCases, EveryKernel) {
  for (const grouped_gemm::Variant& kernel : grouped_gemm::kKernels) {
    for (const char* rows : {"offsets", "counts"}) {
      const std::string sizes = kernel.gated ? "n=192,k=208,activation=" : "n=200,k=208,activation=";
      const std::string settings = sizes + (kernel.gated ? "swiglu" : "none") + ",has_bias=1,rows=" + rows;
      expect_pass("groups=5,max_rows=170," + settings + settings_of(kernel));
      if (kernel.gated) expect_pass("groups=3,max_rows=70,n=64,k=144,activation=clamped_swiglu" + settings_of(kernel));
    }
  }
}

TEST(GroupedGemmCases, Edges) {
  for (const char* spread : {"random", "even", "one"}) {
    for (const char* rows : {"offsets", "counts"}) {
      for (const char* sizes :
           {"groups=1,max_rows=1,n=8,k=8", "groups=70,max_rows=3,n=72,k=72", "groups=3,max_rows=129,n=136,k=64"})
        expect_pass(fmt::format("{},rows={},spread={}", sizes, rows, spread), 1, 4);
    }
  }
  expect_pass("groups=480,max_rows=40,n=8,k=16,spread=random");
}

// Sizes of models: gpt-oss's hidden size in pieces, 768 and 200 as intermediate sizes.
TEST(GroupedGemmCases, OddSizes) {
  expect_pass("groups=5,max_rows=60,n=2880,k=360,has_bias=1");
  expect_pass("groups=3,max_rows=60,n=768,k=1016,scaling=none,activation=swiglu");
  expect_pass("groups=3,max_rows=60,n=200,k=768,scaling=blocks");
  expect_pass("groups=3,max_rows=40,n=320,k=1008,scaling=blocks,activation=clamped_swiglu,has_bias=1");
}

TEST(GroupedGemmCases, RandomNumbers) {
  for (const char* inputs : {"uniform", "normal", "mean", "tiny"})
    expect_pass(fmt::format("groups=4,max_rows=120,n=136,k=520,has_bias=1,inputs={}", inputs));
  for (const char* inputs : {"uniform", "normal", "mean"}) {
    expect_pass(fmt::format("groups=4,max_rows=120,n=136,k=2000,scaling=blocks,inputs={}", inputs));
  }
  for (const char* inputs : {"normal", "mean"}) {
    for (const char* activation : {"swiglu", "clamped_swiglu"})
      expect_pass(fmt::format("groups=3,max_rows=120,n=192,k=1040,scaling=blocks,dtype=fp16,activation={},inputs={}",
                              activation, inputs));
  }
}

TEST(GroupedGemmCases, ManySchedules) {
  for (const char* more : {"scaling=none,rows=offsets", "scaling=blocks,rows=counts"})
    expect_pass(fmt::format("groups=5,max_rows=150,n=192,k=336,tile_rows=128,max_sms=2,activation=swiglu,{}", more),
                40);
  expect_pass("groups=5,max_rows=150,n=136,k=336,tile_rows=64,max_sms=3", 40);
}

// The groups' rows change from one replay to the next.
TEST(GroupedGemmCases, Graphs) {
  expect_pass("groups=6,max_rows=100,n=136,k=136,graph=1", 1, 6);
  expect_pass("groups=6,max_rows=40,n=136,k=144,graph=1,rows=counts,scaling=blocks", 1, 6);
}

TEST(GroupedGemmCases, RefusesInWords) {
  for (const auto& [settings, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"groups=0", "groups is '0'"},
           {"n=12", "GroupedGemmDesc.n is 12"},
           {"n=72,activation=swiglu", "GroupedGemmDesc.n is 72; allowed: a multiple of 64"},
           {"k=72,scaling=blocks", "GroupedGemmDesc.k is 72"},
           {"tile_rows=32", "GroupedGemmDesc.tile_rows is 32"},
           {"tile_columns=256,tile_rows=64", "GroupedGemmDesc.tile_columns is 256"},
           {"scaling=blocks,inputs=tiny", "inputs is 'tiny'"},
           {"activation=swiglu,inputs=exact", "inputs is 'exact'"}}) {
    const CaseResult refused = run(settings);
    EXPECT_FALSE(refused.outcome.pass) << settings;
    EXPECT_NE(refused.outcome.detail.find(part), std::string::npos) << refused.outcome.detail;
  }
  const CaseResult elsewhere = run("n=64", TargetKind::kEmuGfx942);
  EXPECT_NE(elsewhere.outcome.detail.find("grouped_gemm has kernels for Hopper"), std::string::npos)
      << elsewhere.outcome.detail;
}

}  // namespace
}  // namespace farwarp::harness
