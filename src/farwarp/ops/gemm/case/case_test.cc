// gemm through the harness: every kernel, every edge, and the errors that a check must find.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "farwarp/harness/case_test_fixture.h"
#include "farwarp/ops/gemm/plan.h"
#include "farwarp/ops/gemm/reference.h"
#include "farwarp/ops/gemm/variants.h"
#include "farwarp/tile/gemm/shape_wgmma.h"

namespace farwarp::harness {
namespace {

CaseResult run(const std::string& settings, int schedules = 1, TargetKind target = TargetKind::kEmuSm90) {
  return run_case(TestedCase{.op = "gemm", .settings = settings, .target = target, .schedules = schedules});
}

void expect_pass(const std::string& settings, int schedules = 1, TargetKind target = TargetKind::kEmuSm90) {
  harness::expect_pass({.op = "gemm", .settings = settings, .target = target, .schedules = schedules});
}

std::string settings_of(const tile::Variant& kernel) {
  return fmt::format(",swap_ab={},tile_rows={},tile_columns={},dtype={}", kernel.swap_ab ? "yes" : "no", kernel.rows,
                     kernel.columns, name_of(kernel.dtype));
}

// Numbers of rows that a tile holds with room to spare, fills, and that two and four tiles share.
TEST(GemmCases, EveryKernel) {
  for (const tile::Variant& kernel : gemm::kWgmmaKernels) {
    const int room = kernel.swap_ab ? kernel.columns : kernel.rows;
    for (const int m : {1, room - 3, room, room + 1, 3 * room + 9})
      expect_pass(fmt::format("m={},n=264,k=136,has_bias=1", m) + settings_of(kernel));
  }
}

// 120 columns reach into both halves of a tile's 128. 8 multiprocessors have room for two tiles of 4 splits.
TEST(GemmCases, EverySplit) {
  for (const tile::Variant& kernel : gemm::kWgmmaKernels) {
    if (kernel.rows != tile::kWgmmaRows || kernel.columns > tile::kMaxSplitColumns) continue;
    const int room = kernel.swap_ab ? kernel.columns : kernel.rows;
    const bool four = tile::has_four_splits(kernel.swap_ab, kernel.columns);
    for (int splits = 2; splits <= (four ? 4 : 2); splits += 2) {
      for (const int m : {room - 3, 2 * room - 5})
        expect_pass(fmt::format("m={},n=120,k=520,has_bias=1,splits={}", m, splits) + settings_of(kernel), 3);
    }
  }
}

// k has a last step of 16 and one of 112, n a last block of 8 columns and one of 120.
TEST(GemmCases, EveryKernelOfE4m3) {
  for (const tile::Variant& kernel : gemm::kFp8Kernels) {
    for (const char* scaling : {"blocks", "rows", "tensor"}) {
      for (const int m : {1, kernel.rows - 3, 3 * kernel.rows + 9}) {
        expect_pass(fmt::format("m={},n=264,k=272,has_bias=1,scaling={}", m, scaling) + settings_of(kernel));
        expect_pass(fmt::format("m={},n=248,k=624,scaling={}", m, scaling) + settings_of(kernel));
      }
    }
  }
}

TEST(GemmCases, E4m3InManySchedules) {
  expect_pass("m=140,n=136,k=400,swap_ab=no,tile_rows=64,tile_columns=64,max_sms=2,scaling=blocks", 50);
  expect_pass("m=140,n=264,k=400,tile_rows=128,tile_columns=128,max_sms=2,scaling=rows,has_bias=1", 20);
  for (const char* columns : {"64", "128"})
    expect_pass(std::string("m=140,n=72,k=1040,splits=2,has_bias=1,scaling=blocks,tile_columns=") + columns, 20);
  expect_pass("m=100,n=136,k=1040,splits=4,scaling=blocks,tile_columns=128", 20);
}

TEST(GemmCases, E4m3OperandsAsCallersHaveThem) {
  expect_pass("m=70,n=136,k=272,scaling=blocks,x_scale_by_column=1");
  expect_pass("m=70,n=136,k=272,scaling=blocks,x_pitch=288,w_pitch=320,y_pitch=144,graph=1");
  for (const char* inputs : {"uniform", "normal", "mean"}) {
    for (const char* dtype : {"bf16", "fp16"})
      expect_pass(fmt::format("m=70,n=136,k=2000,scaling=blocks,inputs={},dtype={}", inputs, dtype));
  }
}

TEST(GemmCases, Edges) {
  for (const char* m : {"1", "64", "65", "129"}) {
    for (const char* n : {"8", "40", "136"}) {
      for (const char* k : {"8", "72"}) expect_pass(std::string("m=") + m + ",n=" + n + ",k=" + k);
    }
  }
}

TEST(GemmCases, PitchesLeaveWhatLiesBetweenRows) {
  expect_pass("m=70,n=72,k=72,x_pitch=80,w_pitch=88,y_pitch=96");
  expect_pass("m=20,n=72,k=72,x_pitch=80,w_pitch=88,y_pitch=96,has_bias=1");
}

TEST(GemmCases, MoreTilesThanBlocksAndTheReverse) {
  for (const char* blocks : {"1", "3"}) {
    expect_pass(std::string("m=300,n=200,k=200,swap_ab=no,tile_rows=128,tile_columns=64,max_sms=") + blocks);
    expect_pass(std::string("m=300,n=200,k=200,swap_ab=yes,tile_columns=152,max_sms=") + blocks);
    expect_pass(std::string("m=300,n=600,k=200,swap_ab=yes,tile_rows=256,max_sms=") + blocks);
  }
}

TEST(GemmCases, SplitsInManySchedules) {
  expect_pass("m=40,n=136,k=400,splits=2,has_bias=1", 50);
  expect_pass("m=40,n=136,k=400,splits=4,has_bias=1", 50);
  for (const char* columns : {"64", "80", "128"})
    expect_pass(std::string("m=140,n=72,k=200,splits=2,has_bias=1,swap_ab=no,tile_columns=") + columns, 20);
  expect_pass("m=9,n=136,k=1024,splits=4,graph=1,y_pitch=144");
  expect_pass("m=20,n=264,k=1024,splits=2,graph=1,dtype=fp16");
}

TEST(GemmCases, ManySchedules) {
  expect_pass("m=140,n=136,k=200,swap_ab=no,tile_rows=128,tile_columns=64,max_sms=2,has_bias=1", 50);
  expect_pass("m=140,n=136,k=200,swap_ab=no,tile_rows=64,tile_columns=64,max_sms=2,has_bias=1", 50);
  expect_pass("m=300,n=136,k=200,swap_ab=yes,tile_columns=152,max_sms=2,has_bias=1", 50);
}

// kernel_mfma_test.cc tests every shape of these kernels. This tests that the plan chooses them.
TEST(GemmCases, WavesOfMatrixInstructions) {
  for (const char* settings : {"m=1,n=8,k=8", "m=70,n=136,k=200,has_bias=1,dtype=fp16,y_pitch=144",
                               "m=40,n=72,k=600,splits=3", "m=600,n=520,k=72,max_sms=2", "m=33,n=40,k=264,graph=1"})
    expect_pass(settings, 3, TargetKind::kEmuGfx942);
  EXPECT_FALSE(run("m=33,n=40,k=264,tile_columns=64", 1, TargetKind::kEmuGfx942).outcome.pass);
}

TEST(GemmCases, RefusesInWords) {
  for (const auto& [settings, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"m=8,n=64,k=72,scaling=blocks", "k is '72'"},
           {"m=8,n=64,k=64,scaling=blocks,x_pitch=72", "x_pitch is '72'"},
           {"m=8,n=64,k=64,scaling=rows,x_scale_by_column=1", "GemmDesc.x_scale_by_column is 1"},
           {"m=8,n=64,k=64,scaling=rows,swap_ab=yes", "GemmDesc.swap_ab is yes"},
           {"m=8,n=64,k=64,scaling=rows,tile_columns=192", "GemmDesc.tile_columns is 192"},
           {"m=8,n=64,k=64,scaling=rows,inputs=tiny", "inputs is 'tiny'"},
           {"m=8,n=64,k=64,scaling=rows,residue=centred", "scaling is 'rows'"}}) {
    const CaseResult refused = run(settings);
    EXPECT_FALSE(refused.outcome.pass) << settings;
    EXPECT_NE(refused.outcome.detail.find(part), std::string::npos) << refused.outcome.detail;
  }
  const CaseResult elsewhere = run("m=8,n=64,k=64,scaling=rows", 1, TargetKind::kEmuGfx942);
  EXPECT_NE(elsewhere.outcome.detail.find("GemmDesc.scaling is rows"), std::string::npos) << elsewhere.outcome.detail;
  EXPECT_FALSE(run("m=4,n=12,k=8").outcome.pass);
  const CaseResult wide = run("m=100,n=64,k=64,tile_columns=40");
  EXPECT_NE(wide.outcome.detail.find("GemmDesc.tile_columns is 40"), std::string::npos) << wide.outcome.detail;
  const CaseResult many = run("m=40,n=136,k=400,splits=3");
  EXPECT_NE(many.outcome.detail.find("GemmDesc.splits is 3"), std::string::npos) << many.outcome.detail;
}

// The sample of a large product has elements of every warp's part of every tile.
TEST(GemmSample, MeetsEveryBand) {
  const gemm::Sample sample = gemm::choose_sample({.m = 8192, .n = 8192, .k = 8192}, 3);
  ASSERT_EQ(sample.rows.size(), 128u);
  ASSERT_EQ(sample.columns.size(), 1024u);
  for (std::size_t i = 0; i < sample.rows.size(); ++i) EXPECT_EQ(sample.rows[i] / 64, static_cast<int>(i));
  for (std::size_t i = 0; i < sample.columns.size(); ++i) EXPECT_EQ(sample.columns[i] / 8, static_cast<int>(i));
  EXPECT_EQ(gemm::choose_sample({.m = 100, .n = 96, .k = 64}, 3).rows.size(), 100u);
}

}  // namespace
}  // namespace farwarp::harness
