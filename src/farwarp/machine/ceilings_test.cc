#include "farwarp/machine/ceilings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "farwarp/base/temporary_folder_test.h"
#include "farwarp/machine/data_sheets.h"

namespace farwarp {
namespace {

namespace fs = std::filesystem;

class CeilingsTest : public testing::Test {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", (folder_ / "not" / "there" / "yet").c_str(), 1); }

  /// Every figure has a different value, one of them with more digits than a default print shows.
  static Ceilings sample() {
    Ceilings ceilings;
    ceilings.device = "Some GPU (80 GB)";
    ceilings.ranks = 4;
    ceilings.source = "measured 2026-11-20";
    double value = 1.0 / 3;
    for (const CeilingField& field : ceiling_fields()) ceilings.*field.value = value++;
    return ceilings;
  }

  /// What ceilings_of() says on stderr when the kept file holds `text`, for a device without a preset.
  static std::string complaint_about(const std::string& text) {
    const Ceilings ceilings = sample();
    EXPECT_TRUE(save_ceilings(ceilings).ok());
    std::ofstream(*ceilings_file(ceilings.device, ceilings.ranks)) << text;
    testing::internal::CaptureStderr();
    const Ceilings found = ceilings_of(ceilings.device, ceilings.ranks);
    EXPECT_EQ(found.source, "") << text;
    return testing::internal::GetCapturedStderr();
  }

  static std::string kept_text() {
    std::ifstream file(*ceilings_file(sample().device, sample().ranks));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  }

  TemporaryFolder folder_;
};

TEST_F(CeilingsTest, KeepsEveryFigureExactly) {
  const Ceilings saved = sample();
  ASSERT_TRUE(save_ceilings(saved).ok());
  const Ceilings found = ceilings_of(saved.device, saved.ranks);
  EXPECT_EQ(found.device, saved.device);
  EXPECT_EQ(found.ranks, saved.ranks);
  EXPECT_EQ(found.source, saved.source);
  for (const CeilingField& field : ceiling_fields()) EXPECT_EQ(found.*field.value, saved.*field.value) << field.key;
}

TEST_F(CeilingsTest, OneFilePerDeviceAndRanksAndNothingBesideIt) {
  ASSERT_TRUE(save_ceilings(sample()).ok());
  ASSERT_TRUE(save_ceilings(sample()).ok());
  const fs::path file = *ceilings_file(sample().device, sample().ranks);
  EXPECT_EQ(file, folder_ / "not/there/yet/farwarp/ceilings-some-gpu-80-gb-x4.json");
  EXPECT_EQ(std::distance(fs::directory_iterator(file.parent_path()), {}), 1);
  EXPECT_EQ(ceilings_of(sample().device, 8).source, "");
  EXPECT_EQ(ceilings_of("Some other GPU", 4).source, "");
}

TEST_F(CeilingsTest, PresetWhereNothingIsKept) {
  const Ceilings preset = ceilings_of("NVIDIA H200", 8);
  EXPECT_EQ(preset.source.rfind("preset: ", 0), 0u);
  EXPECT_FALSE(preset.measured());
  EXPECT_EQ(preset.hbm_copy_gb_s, 3920);
  Ceilings kept = sample();
  kept.device = "NVIDIA H200";
  kept.ranks = 8;
  ASSERT_TRUE(save_ceilings(kept).ok());
  EXPECT_EQ(ceilings_of("NVIDIA H200", 8).hbm_copy_gb_s, kept.hbm_copy_gb_s);
  EXPECT_EQ(ceilings_of("NVIDIA H200", 4).hbm_copy_gb_s, 3920);
}

TEST(DataSheets, AreModelsWhoseLinksAreSwitchedOrOfPairs) {
  for (const DataSheet& sheet : data_sheets()) {
    const Ceilings two = ceilings_of(sheet, 2), eight = ceilings_of(sheet, 8);
    EXPECT_FALSE(two.measured());
    EXPECT_EQ(two.source.rfind("model: ", 0), 0u);
    EXPECT_EQ(two.link_all_store_gb_s, sheet.link_gb_s);
    EXPECT_EQ(eight.link_all_store_gb_s, (sheet.switched ? 1 : 7) * sheet.link_gb_s);
    EXPECT_EQ(eight.link_pair_store_gb_s, sheet.link_gb_s);
    EXPECT_GT(eight.hbm_read_gb_s, 0);
    EXPECT_GT(eight.mma_bf16_tflops_short, 0);
  }
}

TEST_F(CeilingsTest, DamagedFilesAreIgnoredWithOneLine) {
  ASSERT_TRUE(save_ceilings(sample()).ok());
  const std::string good = kept_text();
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[1, 2]"), good.substr(0, good.size() / 2),
        replaced(good, "\"ranks\": 4", "\"ranks\": 8"), replaced(good, "\"ranks\": 4", "\"ranks\": \"four\""),
        replaced(good, "Some GPU", "Some CPU"), replaced(good, "packet_us", "pocket_us"),
        replaced(good, "\"flag_us\": ", "\"flag_us\": -"),
        replaced(good, "\"flag_us\": ", "\"flag_us\": 1e999, \"x\": "),
        replaced(good, "\"flag_us\": ", "\"flag_us\": null, \"x\": "), replaced(good, "measured", "guessed"),
        replaced(good, "\"ranks\": 4", "\"ranks\": 4.9"), replaced(good, "\"ranks\": 4", "\"ranks\": 4294967300"),
        replaced(good, "\"flag_us\": ", "\"flag_us\": true, \"x\": "),
        replaced(good, "\"schema_version\": 1", "\"schema_version\": 1.9"),
        replaced(good, "\"schema_version\": 1", "\"schema_version\": 4294967297"),
        replaced(good, "\"schema_version\": 1", "\"schema_version\": 2")}) {
    const std::string complaint = complaint_about(text);
    EXPECT_EQ(std::count(complaint.begin(), complaint.end(), '\n'), 1) << text << "\n" << complaint;
    EXPECT_EQ(complaint.rfind("farwarp: ignoring " + folder_.string(), 0), 0u) << complaint;
  }
}

TEST_F(CeilingsTest, ErrorsNameThePath) {
  const fs::path blocked = folder_ / "a_file";
  std::ofstream(blocked) << "in the way";
  setenv("XDG_CACHE_HOME", blocked.c_str(), 1);
  const Status status = save_ceilings(sample());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(blocked.string()), std::string::npos) << status.message();

  setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  const fs::path taken = *ceilings_file(sample().device, sample().ranks);
  fs::create_directories(taken / "a folder where the file should be");
  const Status renamed = save_ceilings(sample());
  EXPECT_FALSE(renamed.ok());
  EXPECT_NE(renamed.message().find(taken.string()), std::string::npos) << renamed.message();
  EXPECT_EQ(std::distance(fs::directory_iterator(taken.parent_path()), {}), 1);  // no half-written file stays
}

TEST_F(CeilingsTest, FolderComesFromTheEnvironment) {
  const char* const kept_home = std::getenv("HOME");
  const std::string home = kept_home == nullptr ? "" : kept_home;
  setenv("HOME", "/home/somebody", 1);
  for (const char* not_a_path : {"", "relative"}) {
    setenv("XDG_CACHE_HOME", not_a_path, 1);
    EXPECT_EQ(ceilings_file("A", 1)->string(), "/home/somebody/.cache/farwarp/ceilings-a-x1.json");
  }
  unsetenv("HOME");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_FALSE(ceilings_file("A", 1).ok());
  EXPECT_FALSE(save_ceilings(sample()).ok());
  EXPECT_EQ(ceilings_of("NVIDIA H200", 8).ranks, 8);
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace farwarp
