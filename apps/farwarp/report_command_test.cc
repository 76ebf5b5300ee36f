// report as its user runs it: a page and JSON of an emulated bench, tables of documents, and what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "program_test_fixture.h"

namespace {

using nlohmann::json;

class ReportCommand : public ProgramTest {
 protected:
  ReportCommand() {
    std::ofstream(name("tiny.json")) << R"({"name": "tiny", "ranks": 2, "ops": {"all-reduce": {
        "benchmarks": [{"elements": 64, "seed": 1}, {"elements": 512, "seed": 2}]}}})";
  }
  void bench() const {
    const Output output = run("bench --suite " + name("tiny.json") + " --target emu_sm90 --samples 9");
    ASSERT_EQ(output.code, 0) << output.err;
  }
  std::string name(const char* file) const { return (folder_ / file).string(); }
};

TEST_F(ReportCommand, WritesAPageAndItsFigures) {
  bench();
  const Output output = run("report --suite tiny -o " + name("r.html") + " --json " + name("r.json"));
  ASSERT_EQ(output.code, 0) << output.err;
  const json report = json::parse(text_of(name("r.json")));
  EXPECT_EQ(report["machine"], "emulated sm90");
  EXPECT_EQ(report["times_have_meaning"], false);
  ASSERT_EQ(report["suites"][0]["cases"].size(), 2u);
  EXPECT_GT(report["suites"][0]["cases"][1]["ours_us"], 0);
  const std::string page = text_of(name("r.html"));
  EXPECT_NE(page.find("<p class=\"warning\">times of the emulator: they say nothing about any machine</p>"),
            std::string::npos);
  EXPECT_NE(page.find("<p>no taxes are recorded</p>"), std::string::npos);
  EXPECT_NE(page.find("<small>NCCL runs on target cuda only"), std::string::npos) << "why there is no baseline";
  // Of the figures alone the same page is made; and --json - is the file.
  ASSERT_EQ(run("report --from " + name("r.json") + " -o " + name("again.html")).code, 0);
  EXPECT_EQ(text_of(name("again.html")), page);
  EXPECT_EQ(run("report --suite tiny --json -").out, text_of(name("r.json")));
}

TEST_F(ReportCommand, KeepsTablesOfDocumentsUpToDate) {
  bench();
  ASSERT_EQ(run("report --json " + name("r.json")).code, 0);
  const std::string begin = "# Times\n<!-- report: data=r.json suite=tiny -->", end = "<!-- end of report -->\n";
  std::ofstream(name("a.md")) << begin << end;
  std::ofstream(name("b.md")) << "no table\n";
  const std::string documents = " --markdown " + name("a.md") + " " + name("b.md");
  const Output stale = run("report --check" + documents);
  EXPECT_EQ(stale.code, 1);
  EXPECT_EQ(stale.err, "farwarp: " + name("a.md") + ": a table differs from its data; `farwarp report --markdown " +
                           name("a.md") + "` writes it\n");
  EXPECT_EQ(text_of(name("a.md")), begin + end) << "--check writes nothing";
  const Output made = run("report" + documents);
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.out, "1 table in 2 documents, 1 of them rewritten\n");
  EXPECT_NE(text_of(name("a.md")).find("\n| all-reduce benchmarks[1] | elements=512"), std::string::npos);
  EXPECT_EQ(run("report --check" + documents).code, 0);
  json report = json::parse(text_of(name("r.json")));
  report["suites"][0]["cases"][1]["ours_us"] = 12345;
  std::ofstream(name("r.json")) << report;
  EXPECT_EQ(run("report --check" + documents).code, 1) << "the data are newer";
}

TEST_F(ReportCommand, SaysWhatItRefuses) {
  const std::string html = " -o " + name("r.html"), db = name("data/farwarp/results.db");
  EXPECT_EQ(run("report" + html).err,
            "farwarp: results are in '" + db + "': does not exist; `farwarp bench` writes it\n");
  bench();
  std::ofstream(name("text.json")) << "{}";
  for (const auto& [arguments, message] :
       {std::pair(std::string(), std::string("-o, --json, --picture or --markdown is needed: what to write")),
        {" -o - --json -", "-o and --json are '-': allowed is one of them on stdout"},
        {html + " --json " + name("r.html"), "-o and --json are '" + name("r.html") + "': allowed are two files"},
        {" -o " + db, "-o is '" + db + "': the command reads it"},
        {" -o /nowhere/r.html", "-o is '/nowhere/r.html': cannot be written"},
        {html + " --suite other",
         "--suite is 'other': allowed are those of which emulated sm90 has complete runs: tiny"},
        {html + " --machine B200", "--machine is 'B200': allowed are emulated sm90"},
        {html + " --from " + name("text.json"),
         "--from is '" + name("text.json") + "': is no JSON that `farwarp report --json` wrote"},
        {html + " --trace " + name("text.json"),
         "--trace is '" + name("text.json") + "': is no JSON that `farwarp trace` wrote"},
        {html + " --trace " + name("none.json"),
         "--trace is '" + name("none.json") + "': cannot be read: No such file or directory"},
        {" --markdown " + name("none.md"),
         "--markdown is '" + name("none.md") + "': cannot be read: No such file or directory"},
        {html + " --check", "--check requires --markdown"},
        {html + " --markdown " + name("a.md"), "--out excludes --markdown"}}) {
    const Output output = run("report" + arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_EQ(output.err, "farwarp: " + message + "\n");
    EXPECT_FALSE(std::filesystem::exists(name("r.html"))) << arguments;
  }
}

}  // namespace
