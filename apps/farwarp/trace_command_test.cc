// farwarp trace on the emulator, as its user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "program_test_fixture.h"

namespace {

using nlohmann::json;

class TraceCommand : public ProgramTest {
 protected:
  json trace(const std::string& arguments, int code) const {
    const std::string path = (folder_ / "trace.json").string();
    const Output output = run("trace " + arguments + " -o " + path);
    EXPECT_EQ(output.code, code) << output.err;
    return json::parse(text_of(path), nullptr, false);
  }
  static int count(const json& trace, const char* phase, const std::string& category) {
    int found = 0;
    for (const json& event : trace["traceEvents"]) found += event["ph"] == phase && event.value("cat", "") == category;
    return found;
  }
};

TEST_F(TraceCommand, HasRanksWarpsAndArrows) {
  for (const char* what : {"moe-a2a", "all-reduce", "ag-gemm"}) {
    for (const char* target : {"emu_sm90", "emu_gfx942"}) {
      SCOPED_TRACE(std::string(what) + " " + target);
      const json file = trace(std::string(what) + " --ranks 2 --target " + target, 0);
      ASSERT_FALSE(file.is_discarded());
      std::set<int> ranks;
      std::set<std::uint64_t> starts, finishes;
      for (const json& event : file["traceEvents"]) {
        ranks.insert(event["pid"].get<int>());
        if (event["ph"] == "s") starts.insert(event["id"].get<std::uint64_t>());
        if (event["ph"] == "f") finishes.insert(event["id"].get<std::uint64_t>());
        if (event["ph"] == "X") {
          EXPECT_GE(event["dur"].get<double>(), 0);
          EXPECT_GE(event["ts"].get<double>(), 0);
        }
      }
      EXPECT_EQ(ranks, (std::set<int>{0, 1}));
      EXPECT_GT(count(file, "X", "launch"), 0);
      EXPECT_GT(count(file, "X", "wait"), 0);
      EXPECT_TRUE(std::includes(starts.begin(), starts.end(), finishes.begin(), finishes.end()));
      // The others send words and packets here, which are their own flags.
      EXPECT_EQ(std::string_view(what) == "ag-gemm", !finishes.empty());
    }
  }
}

TEST_F(TraceCommand, ShowsACallThatFails) {
  const std::string what = "gemm-rs --ranks 2 --target emu_sm90 --calls 1 ";
  const json right = trace(what, 0), wrong = trace(what + "--fault drop_put:1 --deadline-ms 300", 4);
  ASSERT_FALSE(right.is_discarded());
  ASSERT_FALSE(wrong.is_discarded());
  // The call that fails leaves its trace, too.
  for (const json& file : {right, wrong}) {
    EXPECT_EQ(count(file, "X", "launch"), 2);
    EXPECT_GT(count(file, "X", "wait"), 0);
  }
}

TEST_F(TraceCommand, NamesTheStepsOfADecoder) {
  for (const char* target : {"emu_sm90", "emu_gfx942"}) {
    const json file =
        trace("qwen3 --set model=nano4,batch=1,prompt=1,tokens=2,launches=1 --ranks 2 --calls 1 --target " +
                  std::string(target),
              0);
    std::set<std::string> names;
    for (const json& event : file["traceEvents"]) {
      if (event.value("cat", "") == "task") names.insert(event["name"].get<std::string>());
    }
    for (const char* step :
         {"embed", "qkv 0", "attend 0", "out 0", "gate up 0", "down 0", "qkv 1", "head", "next inputs"})
      EXPECT_TRUE(names.contains("task: " + std::string(step))) << target << ": " << step;
  }
}

/// A process replays a schedule exactly: so a trace shows what a check of the same seed did.
TEST_F(TraceCommand, ChangesNoSchedule) {
  for (const std::string what : {"gemm-rs --set m=64", "flash-decode --set batch=1", "moe-a2a --set max_num_tokens=4",
                                 "qwen3 --set model=nano4,batch=1,prompt=1,tokens=2,launches=1"}) {
    for (const char* target : {"emu_sm90", "emu_gfx942"}) {
      const std::string arguments = what + " --ranks 2 --seed 5 --calls 1 --target " + target;
      const std::string path = (folder_ / "check.json").string();
      ASSERT_EQ(run("check " + arguments + " --schedules 1 --json " + path).code, 0) << arguments;
      const json check = json::parse(text_of(path))["cases"][0], file = trace(arguments, 0);
      const std::string hash = check["schedule_hash"].get<std::string>();
      EXPECT_NE(file["otherData"]["description"].get<std::string>().find(hash), std::string::npos)
          << arguments << ": " << hash << ", " << file["otherData"]["description"];
    }
  }
}

TEST_F(TraceCommand, RefusesWhatIsNotOneCase) {
  EXPECT_EQ(run("trace moe-a2a").err, "farwarp: -o is needed: the file to write\n");
  const std::string out = " -o " + (folder_ / "t.json").string();
  EXPECT_EQ(run("trace gemm-rs --suite amd2025" + out).code, 2);
  EXPECT_NE(run("trace gemm-rs --suite amd2025" + out).err.find("name one: --case tests[0]"), std::string::npos);
  EXPECT_NE(run("trace gemm-rs --suite amd2025 --case tests[99]" + out).err.find("--case is 'tests[99]': allowed are"),
            std::string::npos);
  EXPECT_EQ(run("trace gemm-rs --ranks 2 -o /nowhere/t.json").err,
            "farwarp: -o is '/nowhere/t.json': cannot be written\n");
}

}  // namespace
