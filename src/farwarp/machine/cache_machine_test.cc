#include "farwarp/machine/cache_machine.h"

#include <gtest/gtest.h>

#include <fstream>

#include "farwarp/base/temporary_folder_test.h"

namespace farwarp {
namespace {

std::string complaint(std::string_view text) {
  const auto machine = parse_cache_machine(text, "f.json");
  return machine.ok() ? "" : machine.status().message();
}

TEST(CacheMachine, PresetsAreValidAndNameTheirSources) {
  for (const CacheMachine& preset : cache_machine_presets()) {
    EXPECT_TRUE(check(preset).ok()) << check(preset).message();
    EXPECT_FALSE(preset.source.empty());
    EXPECT_TRUE(find_cache_machine(preset.name).ok());
  }
  EXPECT_EQ(find_cache_machine("mi300x")->cus_per_xcd, 38);
  EXPECT_EQ(find_cache_machine("mi300").status().message(),
            "machine 'mi300' is unknown: allowed are mi300x, mi350x, h200, and the path of a JSON file");
}

TEST(CacheMachine, FilesHaveAllFields) {
  const auto machine = parse_cache_machine(
      R"({"name": "small", "source": "none", "xcds": 2, "cus_per_xcd": 4, "resident": 3, "first_xcd": 1,
          "l2": {"bytes": 8192, "ways": 4, "line": 64}, "memory_side": {"bytes": 0}, "reads_peer_l2": true,
          "l2_gb_s": 100, "memory_side_gb_s": 50, "hbm_gb_s": 10.5, "l2_ns": 1, "memory_side_ns": 2, "hbm_ns": 3,
          "cu_tflops": 0.5})",
      "f.json");
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine->name, "small");
  EXPECT_EQ(machine->xcds, 2);
  EXPECT_EQ(machine->resident, 3);
  EXPECT_EQ(machine->first_xcd, 1);
  EXPECT_EQ(machine->l2.bytes, 8192);
  EXPECT_EQ(machine->l2.ways, 4);
  EXPECT_EQ(machine->l2.line, 64);
  EXPECT_TRUE(machine->reads_peer_l2);
  EXPECT_EQ(machine->hbm_gb_s, 10.5);
  EXPECT_EQ(machine->cu_tflops, 0.5);
}

TEST(CacheMachine, AFileChangesAPreset) {
  const auto machine = parse_cache_machine(R"({"like": "mi300x", "first_xcd": 4})", "f.json");
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(machine->first_xcd, 4);
  EXPECT_EQ(machine->memory_side.bytes, std::int64_t{256} << 20);
}

TEST(CacheMachine, ErrorsNameTheFieldItsValueAndWhatIsAllowed) {
  EXPECT_EQ(complaint("["), "f.json: not valid JSON at line 1 (byte 1 of 1)");
  EXPECT_EQ(complaint("[]"), "f.json: it is no JSON object");
  EXPECT_EQ(complaint(R"({"like": "mi200"})"), "f.json: like is \"mi200\": allowed is mi300x, mi350x, h200");
  const auto like = [](const std::string& text) { return complaint(R"({"like": "mi300x", )" + text + "}"); };
  EXPECT_EQ(like(R"("first_xcd": 4)"), "");
  EXPECT_EQ(like(R"("xcds": 0)"), "f.json: xcds is 0: allowed is an integer in 1..64");
  EXPECT_EQ(like(R"("xcds": 2.5)"), "f.json: xcds is 2.5: allowed is an integer in 0..2147483647");
  EXPECT_EQ(like(R"("xcds": 99999999999999999999)").substr(0, 16), "f.json: xcds is ");
  EXPECT_EQ(like(R"("hbm_gb_s": -1)"), "f.json: hbm_gb_s is -1: allowed is a number above 0, at most 1e9");
  EXPECT_EQ(like(R"("hbm_gb_s": "fast")"), "f.json: hbm_gb_s is \"fast\": allowed is a number");
  EXPECT_EQ(like(R"("memory_side_gb_s": 0)"),
            "f.json: memory_side_gb_s is 0: allowed is a number above 0, because memory_side or reads_peer_l2 is used");
  EXPECT_EQ(like(R"("l2": {"bytes": 1000})"),
            "f.json: l2.bytes is 1000: allowed is a multiple of line * ways = 2048, at most 16 GB");
  EXPECT_EQ(like(R"("l2": {"line": 100})"), "f.json: l2.line is 100: allowed is a power of two in 16..4096");
  EXPECT_EQ(like(R"("l2": {"ways": 0})"), "f.json: l2.ways is 0: allowed is an integer in 1..128");
  EXPECT_EQ(like(R"("l2": {"size": 1})"), "f.json: l2: unknown field \"size\" is 1: allowed is bytes, ways, line");
  EXPECT_EQ(like(R"("l2": 4)"), "f.json: l2 is 4: allowed is an object with bytes, ways, line");
  EXPECT_EQ(like(R"("reads_peer_l2": 1)"), "f.json: reads_peer_l2 is 1: allowed is true or false");
  EXPECT_EQ(like(R"("name": 1)"), "f.json: name is 1: allowed is a string");
  EXPECT_NE(like(R"("cus": 1)").find("unknown field \"cus\" is 1: allowed is name, "), std::string::npos);
}

TEST(CacheMachine, IsReadFromAFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "machine.json";
  std::ofstream(path) << R"({"like": "h200", "name": "mine"})";
  const auto machine = find_cache_machine(path);
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine->name, "mine");
  std::remove(path.c_str());
  EXPECT_EQ(find_cache_machine(path).status().message(),
            "machine '" + path + "': it cannot be read: No such file or directory");
}

}  // namespace
}  // namespace farwarp
