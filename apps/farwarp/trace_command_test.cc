// farwarp trace on the emulator, as its user runs it.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

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
  for (const char* what : {"moe-a2a", "all-reduce --set count=65536", "gemm-rs", "ag-gemm"}) {
    for (const char* target : {"emu_sm90", "emu_gfx942"}) {
      SCOPED_TRACE(std::string(what) + " " + target);
      const json file = trace(std::string(what) + " --ranks 2 --target " + target, 0);
      ASSERT_FALSE(file.is_discarded());
      std::set<int> ranks;
      std::map<std::pair<int, std::int64_t>, double> ends;  // of the slices of each thread
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
      EXPECT_EQ(starts, finishes) << "every put ends a wait in a call that is right";
    }
  }
}

TEST_F(TraceCommand, ShowsThePutThatIsMissing) {
  const json right = trace("gemm-rs --ranks 2 --target emu_sm90 --calls 1", 0);
  const json wrong = trace("gemm-rs --ranks 2 --target emu_sm90 --calls 1 --fault drop_put:1 --deadline-ms 300", 1);
  ASSERT_FALSE(wrong.is_discarded());
  EXPECT_GT(count(wrong, "X", "launch"), 0);
  EXPECT_GT(count(right, "X", "send"), 0);
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
