// bench, leaderboard and compare as their user runs them: results are kept, ranked and compared, on the emulator.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "farwarp/results/database.h"
#include "farwarp/results/store.h"
#include "program_test_fixture.h"

namespace {

using farwarp::results::Database;
using farwarp::results::Store;
using nlohmann::json;

constexpr const char* kNoMeaning = "times of the emulator: they say nothing about any machine\n";

class ResultsCommands : public ProgramTest {
 protected:
  ResultsCommands() {
    std::ofstream(suite_) << R"({"name": "tiny", "ranks": 2, "ops": {"all-reduce": {
        "tests": [{"elements": 8, "seed": 1}],
        "benchmarks": [{"elements": 64, "seed": 1}, {"elements": 512, "seed": 2}]}}})";
  }

  Output bench(const std::string& more = "") const {
    return run("bench --suite " + suite_ + " --target emu_sm90 --samples 9 " + more);
  }
  Output compare(const std::string& arguments) const { return run("compare " + arguments); }
  Store store(const std::string& path) const {
    auto opened = Store::open(path, Database::Access::kRead);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return std::move(*opened);
  }
  std::string name(const char* file) const { return (folder_ / file).string(); }
  /// Changes kept results as nobody should.
  void tamper(const std::string& path, const char* sql) const {
    auto database = Database::open(path, Database::Access::kWrite);
    ASSERT_TRUE(database.ok() && database->run(sql).ok()) << sql;
  }

  std::string suite_ = (folder_ / "tiny.json").string();
  std::string default_ = (folder_ / "data" / "farwarp" / "results.db").string();
};

TEST_F(ResultsCommands, BenchKeepsWhatItHasMeasured) {
  const Output output = bench("--label main --set dtype=fp16");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_NE(output.out.find("2 passed, 0 failed\nkept as run 1 in " + default_ + "\n"), std::string::npos)
      << output.out;
  Store kept = store(default_);
  const auto runs = kept.runs();
  ASSERT_TRUE(runs.ok());
  ASSERT_EQ(runs->size(), 1u);
  const auto& made = runs->front();
  EXPECT_EQ(made.label, "main");
  EXPECT_EQ(made.machine, "emulated sm90");
  EXPECT_EQ(made.target, "emu_sm90");
  EXPECT_EQ(made.ranks, 2);
  EXPECT_TRUE(made.complete);
  EXPECT_NE(run("--version").out.find(made.commit), std::string::npos);
  EXPECT_NE(made.command.find(" bench --suite " + suite_), std::string::npos) << made.command;
  auto cases = kept.cases_of_run(1);
  ASSERT_EQ(cases->size(), 2u);
  auto& second = cases->back();
  EXPECT_EQ(second.op + second.suite + second.label + second.settings, "all-reducetinybenchmarks[1]dtype=fp16");
  EXPECT_EQ(json::parse(second.params)["elements"], "512");
  EXPECT_EQ(json::parse(second.params)["dtype"], "fp16");
  EXPECT_TRUE(second.verified);
  EXPECT_NE(second.no_baseline.find("NCCL"), std::string::npos);
  ASSERT_TRUE(kept.read_samples(second.series.front()).ok());
  EXPECT_EQ(second.series.front().us.size(), 9u);
  EXPECT_EQ(second.series.front().entry, "farwarp " + made.commit);
  EXPECT_GT(second.series.front().back_to_back_us, 0);
}

TEST_F(ResultsCommands, NothingIsKeptIfNotAskedFor) {
  const Output output = bench("--no-results");
  EXPECT_EQ(output.code, 0);
  EXPECT_EQ(output.out.find("kept"), std::string::npos);
  EXPECT_EQ(run("check " + suite_ + " --target emu_sm90").code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "data"));
}

TEST_F(ResultsCommands, BadPathsAndLabelsAreRefusedBeforeAnythingRuns) {
  std::ofstream(name("text.db")) << std::string(2000, 'x');
  for (const auto& [arguments, message] :
       {std::pair("--results " + name("text.db"), "--results is '" + name("text.db") + "': file is not a database"),
        {"--results " + name("none/r.db"), "--results is '" + name("none/r.db") + "': unable to open database file"},
        {"--results " + folder_.string(),
         "--results is '" + folder_.string() + "': is a folder; allowed: a regular file"},
        {std::string("--results ''"), "--results: the value is empty"},
        {std::string("--label 12"),
         "--label is '12': allowed are up to 100 printable ASCII characters, the first one "
         "a letter, without '/' and without .db at the end"},
        {"--results " + name("r.db") + " --no-results", "--results excludes --no-results"},
        {"--results " + name("r.db") + " --json " + name("r.db"),
         "--json is '" + name("r.db") + "': the command reads it"}}) {
    const Output output = bench(arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_EQ(output.err, "farwarp: " + message + "\n");
    EXPECT_EQ(output.out, "");
  }
  // Where nobody named it, a database that cannot be used is not worth the bench.
  setenv("XDG_DATA_HOME", name("text.db").c_str(), 1);
  const Output output = bench();
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.err.find("farwarp: results of this bench are not kept: "), 0u) << output.err;
}

TEST_F(ResultsCommands, AnInterruptedRunKeepsWhatItHad) {
  std::ofstream(suite_) << R"({"name": "tiny", "ranks": 2, "ops": {"all-reduce": {"benchmarks": [
      {"elements": 64, "seed": 1}, {"elements": 20000, "seed": 2}, {"elements": 20008, "seed": 2}]}}})";
  std::vector<std::string> arguments = {FARWARP_PROGRAM, "bench",     "--suite", suite_,      "--target",
                                        "emu_sm90",      "--samples", "30",      "--results", name("r.db")};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, name("out").c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  pid_t ended = 0;
  while (text_of(name("out")).find("benchmarks[0]") == std::string::npos &&
         (ended = waitpid(child, &status, WNOHANG)) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(ended, 0) << "it ended by itself: " << status;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  Store kept = store(name("r.db"));
  EXPECT_FALSE(kept.runs()->front().complete);
  const auto cases = kept.cases_of_run(1);
  ASSERT_GE(cases->size(), 1u);
  EXPECT_LT(cases->size(), 3u);
  EXPECT_EQ(cases->front().label, "benchmarks[0]");
}

TEST_F(ResultsCommands, LeaderboardRanksAndRefuses) {
  const std::string board = "leaderboard --suite " + suite_;
  const Output nothing = run(board);
  EXPECT_EQ(nothing.code, 2);
  EXPECT_EQ(nothing.err, "farwarp: results are in '" + default_ + "': does not exist; `farwarp bench` writes it\n");
  ASSERT_EQ(bench().code, 0);
  const Output ranked = run(board + " --json " + name("board.json"));
  EXPECT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_EQ(ranked.out.find(std::string("tiny: 2 benchmarks, 2 x emulated sm90\n") + kNoMeaning), 0u) << ranked.out;
  EXPECT_NE(ranked.out.find("\n1     farwarp "), std::string::npos) << ranked.out;
  const json root = json::parse(text_of(name("board.json")));
  EXPECT_EQ(root["boards"][0]["times_have_meaning"], false);
  EXPECT_EQ(root["boards"][0]["places"][0]["ranked"], true);
  EXPECT_EQ(run(board + " all-reduce").code, 0);
  EXPECT_EQ(run(board + " gemm").err, "farwarp: suite tiny has no benchmarks of gemm\n");
  EXPECT_EQ(run(board + " fly").code, 2);
  EXPECT_EQ(run("leaderboard --suite no-such-suite").code, 2);
  EXPECT_EQ(run("leaderboard").code, 2);
  const Output other = run("leaderboard --suite amd2025");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("has no times of suite amd2025; `farwarp bench --suite amd2025` takes them"),
            std::string::npos)
      << other.err;
  tamper(default_, "UPDATE cases SET floor_us = 1e6, floor_bound_by = 'memory' WHERE label = 'benchmarks[1]'");
  const Output refused = run(board);
  EXPECT_EQ(refused.code, 0);
  EXPECT_NE(refused.out.find(" us is below the floor of 1000000.00 us: memory\n"), std::string::npos) << refused.out;
  EXPECT_EQ(refused.out.find("\n1 "), std::string::npos) << refused.out;
}

TEST_F(ResultsCommands, ComparesKeptRuns) {
  ASSERT_EQ(bench("--label old").code, 0);
  ASSERT_EQ(bench("--results " + name("other.db")).code, 0);
  const Output same = compare("1 1 --strict --json " + name("compared.json"));
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_NE(same.out.find(kNoMeaning), std::string::npos);
  EXPECT_NE(same.out.find("geometric mean of B/A: 1.000\n0 FASTER, 0 SLOWER, 4 SAME, 0 UNDECIDED"), std::string::npos)
      << same.out;
  EXPECT_EQ(json::parse(text_of(name("compared.json")))["counts"]["SAME"], 4);
  EXPECT_LE(compare("old " + name("other.db")).code, 1);
  tamper(name("other.db"), "UPDATE samples SET us = us * 2");
  const Output slower = compare("old " + name("other.db"));
  EXPECT_EQ(slower.code, 1) << slower.out << slower.err;
  EXPECT_NE(slower.out.find("4 SLOWER"), std::string::npos) << slower.out;
  EXPECT_EQ(compare(name("other.db") + " old").code, 0) << "B is faster";
  tamper(name("other.db"), "DELETE FROM samples WHERE number > 2");
  EXPECT_EQ(compare("old " + name("other.db")).code, 0);
  const Output undecided = compare("old " + name("other.db") + " --strict");
  EXPECT_EQ(undecided.code, 2);
  EXPECT_NE(undecided.out.find("9 and 3 samples; at least 8 of each are needed"), std::string::npos) << undecided.out;
}

TEST_F(ResultsCommands, CompareSaysWhatItCannotCompare) {
  ASSERT_EQ(bench("--label old").code, 0);
  const std::string none = name("none.db");
  for (const auto& [arguments, message] :
       {std::pair(std::string("1 2"), std::string("B is '2': there is no run 2; allowed: runs 1..1, old")),
        {"1 new", "B is 'new': no run has this label; allowed: runs 1..1, old"},
        {"1,1 1", "A is '1,1': run 1 is named twice; allowed: each run once"},
        {"1 0", "B is '0': run is '0': allowed is an integer in 1..9223372036854775807"},
        {"1 " + none, "B is '" + none + "': there is no such database or program"},
        {"1 " + suite_, "B is '" + suite_ + "': file is not a database"},
        {"1 1 --ranks 2", "--ranks is '2': allowed only if A and B are programs, which compare runs"},
        {"1 1 gemm", "what is 'gemm': allowed only if A and B are programs, which compare runs"},
        {"1 1 --json " + default_, "--json is '" + default_ + "': the command reads it"},
        {std::string("1 ") + FARWARP_PROGRAM,
         "A is '1' and B is '" FARWARP_PROGRAM "': allowed are two programs, or kept results of both"},
        {"1 1 --results " + none, "--results is '" + none + "': does not exist; `farwarp bench` writes it"}}) {
    const Output output = compare(arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_EQ(output.err, "farwarp: " + message + "\n");
  }
  EXPECT_EQ(compare("1").code, 2);
}

TEST_F(ResultsCommands, ComparesTwoProgramsInTurn) {
  const std::string program = FARWARP_PROGRAM;
  const std::string options = " --ranks 2 --target emu_sm90 --samples 8 --set elements=64";
  const Output output = compare(program + " " + program + " all-reduce" + options + " --json -");
  EXPECT_LE(output.code, 1) << output.err;
  const json root = json::parse(output.out);
  EXPECT_EQ(root["a"]["runs"].size(), 2u);
  EXPECT_EQ(root["a"]["runs"][0]["id"], 1);
  EXPECT_EQ(root["a"]["runs"][1]["id"], 4);
  EXPECT_EQ(root["b"]["runs"][1]["id"], 3) << "A, B, B, A";
  EXPECT_EQ(root["cases"][0]["series"][0]["us"]["a"]["n"], 16);
  EXPECT_EQ(root["times_have_meaning"], false);
  EXPECT_NE(output.err.find(" all-reduce elements=64: all-reduce\n"), std::string::npos) << output.err;
  // A program that is no farwarp, one that keeps no results, and a wrong option.
  const Output other = compare("/bin/false /bin/false all-reduce" + options);
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("farwarp: A is '/bin/false': it kept no results\n"), std::string::npos) << other.err;
  const Output wrong = compare(program + " " + program + " all-reduce --ranks 9");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("its bench ended with exit code 2\n"), std::string::npos) << wrong.err;
}

}  // namespace
