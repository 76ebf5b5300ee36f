// The table of plans, without a device: lookups, parsing and kept files.
#include "farwarp/ops/parallel_gemm/dispatch/plan_table.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <functional>
#include <set>
#include <tuple>

#include "farwarp/base/temporary_folder_test.h"
#include "farwarp/machine/kept_file.h"

namespace farwarp::parallel_gemm {
namespace {

namespace fs = std::filesystem;

PlanEntry entry(Kind kind, int m, int n, int k, Path path) {
  PlanEntry made;
  made.kind = kind;
  made.m = m;
  made.n = n;
  made.k = k;
  made.path = path;
  made.own_us = path == Path::kOwn ? 20.5 : 30.5;
  made.unfused_us = 25;
  made.measured = "2026-11-22";
  return made;
}

PlanTable sample() {
  PlanTable table{"Some GPU", 2, {}};
  put(table, entry(Kind::kAllGather, 64, 512, 1024, Path::kUnfused));
  put(table, entry(Kind::kAllGather, 1024, 512, 1024, Path::kOwn));
  put(table, entry(Kind::kReduceScatter, 64, 512, 1024, Path::kOwn));
  table.entries[0].algorithm = 3;
  table.entries[1].tile_columns = 64;
  return table;
}

ParallelGemmDesc desc(int m, int n, int k, DType dtype = DType::kBf16) {
  ParallelGemmDesc made;
  made.m = m;
  made.n = n;
  made.k = k;
  made.dtype = dtype;
  return made;
}

TEST(PlanTable, TakesWhatWasMeasuredForTheShape) {
  const Choice unfused = choose(sample(), Kind::kAllGather, desc(64, 512, 1024));
  EXPECT_EQ(unfused.path, Path::kUnfused);
  EXPECT_EQ(unfused.algorithm, 3);
  EXPECT_EQ(unfused.why, "measured 2026-11-22: own 30.5 us, unfused 25.0 us");
  const Choice own = choose(sample(), Kind::kAllGather, desc(1024, 512, 1024));
  EXPECT_EQ(own.path, Path::kOwn);
  EXPECT_EQ(own.tile_columns, 64);
  EXPECT_EQ(choose(sample(), Kind::kReduceScatter, desc(64, 512, 1024)).path, Path::kOwn);
}

TEST(PlanTable, TakesThePathOfTheNearestShapeAndNothingElseOfIt) {
  const Choice near = choose(sample(), Kind::kAllGather, desc(64, 768, 1024));
  EXPECT_EQ(near.path, Path::kUnfused);
  EXPECT_EQ(near.algorithm, 0);
  EXPECT_EQ(near.why, "as the nearest shape, 64 x 512 x 1024, measured 2026-11-22: own 30.5 us, unfused 25.0 us");
  const Choice other = choose(sample(), Kind::kAllGather, desc(800, 512, 1024));
  EXPECT_EQ(other.path, Path::kOwn);
  EXPECT_EQ(other.tile_columns, 0);
}

TEST(PlanTable, NearIsAFactorOfTwoInOneSize) {
  const auto path = [](int m, int n, int k) { return choose(sample(), Kind::kAllGather, desc(m, n, k)).path; };
  EXPECT_EQ(path(128, 512, 1024), Path::kUnfused);
  EXPECT_EQ(path(32, 512, 1024), Path::kUnfused);
  EXPECT_EQ(path(64, 512, 2048), Path::kUnfused);
  EXPECT_EQ(path(64, 512, 2056), Path::kOwn);
  EXPECT_EQ(path(128, 1024, 1024), Path::kOwn);
  EXPECT_EQ(path(96, 768, 1536), Path::kOwn) << "1.5 three times is just too far";
  EXPECT_EQ(path(96, 712, 1424), Path::kUnfused);
  EXPECT_EQ(choose(sample(), Kind::kAllGather, desc(1, 8, 8)).why,
            "ag-gemm of 1 x 8 x 8 in bf16 is not near any shape in the table of plans");
}

TEST(PlanTable, OtherOperatorsAndDtypesAreNotNear) {
  EXPECT_EQ(choose(sample(), Kind::kAllGather, desc(64, 512, 1024, DType::kF16)).path, Path::kOwn);
  EXPECT_EQ(choose(sample(), Kind::kAllReduce, desc(64, 512, 1024)).why,
            "gemm-ar of 64 x 512 x 1024 in bf16 is not near any shape in the table of plans");
}

TEST(PlanTable, WithoutEntriesOrWithABoundOnBlocksItIsOurs) {
  const Choice none = choose({"Some GPU", 2, {}}, Kind::kAllGather, desc(64, 512, 1024));
  EXPECT_EQ(none.path, Path::kOwn);
  EXPECT_EQ(none.why, "there is no table of plans for 2 x Some GPU");
  ParallelGemmDesc bounded = desc(64, 512, 1024);
  bounded.max_sms = 16;
  const Choice choice = choose(sample(), Kind::kAllGather, bounded);
  EXPECT_EQ(choice.path, Path::kOwn);
  EXPECT_EQ(choice.why, "max_sms bounds our blocks, and nothing those of NCCL and cuBLASLt");
}

TEST(PlanTable, AShapeMeasuredAgainReplacesItself) {
  PlanTable table = sample();
  put(table, entry(Kind::kAllGather, 64, 512, 1024, Path::kOwn));
  EXPECT_EQ(table.entries.size(), 3u);
  EXPECT_EQ(table.entries[0].path, Path::kOwn);
}

TEST(PlanTable, IsReadAsItWasWritten) {
  const PlanTable written = sample();
  const auto read = parse_plans(to_json(written));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(to_json(*read), to_json(written));
  EXPECT_EQ(read->device, "Some GPU");
  EXPECT_EQ(read->ranks, 2);
  ASSERT_EQ(read->entries.size(), 3u);
  EXPECT_EQ(read->entries[0].algorithm, 3);
  EXPECT_EQ(read->entries[1].tile_columns, 64);
  EXPECT_EQ(read->entries[2].kind, Kind::kReduceScatter);
  EXPECT_EQ(read->entries[2].own_us, 20.5);
  EXPECT_TRUE(parse_plans(to_json({"none", 1, {}})).ok());
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = to_json(sample());
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return text.replace(text.find(from), from.size(), to);
}

TEST(PlanTable, SaysWhatIsWrongWithAFile) {
  const std::tuple<std::string, const char*> wrong[] = {
      {"", "not valid JSON at line 1"},
      {"[]", "it is no JSON object"},
      {to_json(sample()).substr(0, 100), "not valid JSON at line "},
      {with("\"schema_version\": 1", "\"schema_version\": 2"), "it is of another schema version"},
      {with("\"schema_version\": 1", "\"schema_version\": 1.9"), "it is of another schema version"},
      {with("\"schema_version\": 1", "\"schema_version\": 4294967297"), "it is of another schema version"},
      {with("\"schema_version\": 1", "\"schema_version\": true"), "it is of another schema version"},
      {with("\"schema_version\": 1", "\"schema_version\": 1.0"), "it is of another schema version"},
      {with("\"schema_version\"", "\"ranks\": 2, \"schema_version\""), "key \"ranks\" is given twice in one object"},
      {std::string(100'000, '[') + std::string(100'000, ']'), "nested deeper than 16 levels"},
      {with("\"ranks\": 2", "\"ranks\": 9"), "ranks is 9; allowed: 1 to 8"},
      {with("\"ranks\"", "\"rank\""), "key 'ranks' not found"},
      {with("\"ag-gemm\"", "\"gemm\""), "entry 0: op is 'gemm'; allowed: ag-gemm, gemm-rs, gemm-ar"},
      {with("\"unfused\"", "\"best\""), "entry 0: path is 'best'; allowed: own, unfused"},
      {with("\"bf16\"", "\"fp32\""), "entry 0: dtype is 'fp32'; allowed: bf16, fp16"},
      {with("\"m\":64", "\"m\":0"), "entry 0: m is 0; allowed: 1 to 16777216"},
      {with("\"m\":64", "\"m\":6.5"), "entry 0: m is 6.5; allowed: 1 to 16777216"},
      {with("\"m\":64", "\"m\":\"64\""), "entry 0: m is \"64\"; allowed: 1 to 16777216"},
      {with("\"tile_columns\":64", "\"tile_columns\":-1"), "entry 1: tile_columns is -1; allowed: 0 to 1024"},
      {with("\"own_us\":30.5", "\"own_us\":0"), "entry 0: own_us is 0; allowed: microseconds, more than 0"},
      {with("\"unfused_us\":25.0", "\"unfused_us\":null"), "unfused_us is null"},
      {with("\"entries\": [", "\"entries\": 3, \"other\": ["), "entries is no array"}};
  for (const auto& [text, words] : wrong) {
    const Status status = parse_plans(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << words;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  }
}

TEST(PlanTable, WhatTheBuildBringsCanBeRead) {
  std::set<std::pair<std::string, int>> machines;
  for (const std::string_view text : built_in_plans()) {
    const auto table = parse_plans(text);
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    EXPECT_TRUE(machines.emplace(table->device, table->ranks).second) << "two tables of one machine";
    PlanTable again{table->device, table->ranks, {}};
    for (const PlanEntry& each : table->entries) put(again, each);
    EXPECT_EQ(again.entries.size(), table->entries.size()) << "two entries of one shape";
    EXPECT_EQ(plans_of(table->device, table->ranks).entries.size(), table->entries.size());
  }
}

class KeptPlans : public testing::Test {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  static void keep(const std::string& text) { ASSERT_TRUE(replace_text(*plans_file("Some GPU", 2), text).ok()); }
  TemporaryFolder folder_;
};

TEST_F(KeptPlans, OverrulesWhatTheBuildBrings) {
  EXPECT_EQ(plans_file("Some GPU", 2)->string(), (folder_ / "farwarp" / "plans-some-gpu-x2.json").string());
  EXPECT_TRUE(plans_of("Some GPU", 2).entries.empty());
  keep(to_json(sample()));
  EXPECT_EQ(plans_of("Some GPU", 2).entries.size(), 3u);
  EXPECT_TRUE(plans_of("Some GPU", 4).entries.empty());
  for (const std::string_view text : built_in_plans()) {
    const auto table = parse_plans(text);
    ASSERT_TRUE(
        replace_text(*plans_file(table->device, table->ranks), to_json({table->device, table->ranks, {}})).ok());
    EXPECT_TRUE(plans_of(table->device, table->ranks).entries.empty());
  }
}

TEST_F(KeptPlans, WhatCannotBeUsedIsIgnoredAloud) {
  PlanTable other = sample();
  other.device = "Some-GPU";  // has the same file name
  const fs::path file = *plans_file("Some GPU", 2);
  const std::function<void()> damages[] = {[] { keep("{"); },
                                           [&] { keep(to_json(other)); },
                                           [&] { fs::create_directories(file); },
                                           [&] { ASSERT_EQ(mkfifo(file.c_str(), 0600), 0); },
                                           [&] { fs::create_symlink("/dev/zero", file); },
                                           [&] { fs::create_symlink(file.filename(), file); }};
  for (const std::function<void()>& damage : damages) {
    fs::remove(file);
    damage();
    testing::internal::CaptureStderr();
    EXPECT_TRUE(plans_of("Some GPU", 2).entries.empty());
    const std::string complaint = testing::internal::GetCapturedStderr();
    EXPECT_EQ(complaint.rfind("farwarp: ignoring " + folder_.string(), 0), 0u) << complaint;
  }
}

}  // namespace
}  // namespace farwarp::parallel_gemm
