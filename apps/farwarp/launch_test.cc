#include "launch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <thread>

namespace farwarp::cli {
namespace {

using namespace std::chrono_literals;

struct Outcome {
  int code = -1;
  std::vector<std::string> out;  // sorted: ranks write in any order
  std::string err;
  std::chrono::steady_clock::duration took{};

  bool has(const std::string& line) const { return std::find(out.begin(), out.end(), line) != out.end(); }
};

std::string read_back(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int character; (character = std::fgetc(file)) != EOF;) text += static_cast<char>(character);
  return text;
}

/// Launches in a process of its own, as the command line does; `meanwhile` gets its pid.
Outcome launch(int ranks, const std::string& script, LaunchOptions options = {},
               const std::function<void(pid_t)>& meanwhile = {}, const std::vector<std::string>& arguments = {}) {
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  const auto start = std::chrono::steady_clock::now();
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::dup2(::fileno(out), STDOUT_FILENO);
    ::dup2(::fileno(err), STDERR_FILENO);
    std::vector<std::string> command{"sh", "-c", script, "script"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const int code = launch_command(ranks, command, options);
    std::fflush(nullptr);
    ::_exit(code);
  }
  if (meanwhile) meanwhile(launcher);
  int status = 0;
  ::waitpid(launcher, &status, 0);
  Outcome outcome;
  outcome.took = std::chrono::steady_clock::now() - start;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  std::istringstream lines(read_back(out));
  for (std::string line; std::getline(lines, line);) outcome.out.push_back(line);
  std::sort(outcome.out.begin(), outcome.out.end());
  outcome.err = read_back(err);
  std::fclose(out);
  std::fclose(err);
  return outcome;
}

/// A file that scripts write and tests read. It works also when the launcher no longer forwards output.
class Notes {
 public:
  Notes() {
    const int fd = ::mkstemp(path_.data());
    if (fd >= 0) ::close(fd);
  }
  ~Notes() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  void wait_for_lines(std::size_t count) const {
    for (int tries = 0; lines().size() < count && tries < 5000; ++tries) std::this_thread::sleep_for(1ms);
    ASSERT_GE(lines().size(), count);
  }

 private:
  std::string path_ = "/tmp/farwarp-launch-test-XXXXXX";
};

/// A zombie, which its new parent has not yet waited for, is not alive.
bool alive(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string stat;
  std::getline(file, stat);
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

/// Waits up to a second, because a killed process takes a moment to end.
bool gone(const std::string& pid) {
  for (int tries = 0; tries < 1000 && alive(pid); ++tries) std::this_thread::sleep_for(1ms);
  return !alive(pid);
}

TEST(Launch, GivesEveryRankItsEnvironmentAndPrefixesItsLines) {
  const Outcome outcome =
      launch(3, "echo $RANK $LOCAL_RANK $WORLD_SIZE; echo id:$FARWARP_RENDEZVOUS; echo oops $RANK >&2");
  EXPECT_EQ(outcome.code, 0);
  for (const char* line : {"[0] 0 0 3", "[1] 1 1 3", "[2] 2 2 3"}) EXPECT_TRUE(outcome.has(line)) << line;
  EXPECT_NE(outcome.err.find("[1] oops 1\n"), std::string::npos) << outcome.err;
  std::set<std::string> ids;
  for (const std::string& line : outcome.out) {
    if (line.find("id:") == 4) ids.insert(line.substr(4));
  }
  EXPECT_EQ(ids.size(), 1u) << "one rendezvous for all";
  EXPECT_GT(ids.begin()->size(), 15u);
  const Outcome again = launch(1, "echo id:$FARWARP_RENDEZVOUS");
  EXPECT_NE(again.out.front().substr(4), *ids.begin()) << "and another one each time";
}

TEST(Launch, RelaysWholeLines) {
  const Outcome outcome =
      launch(2, "for i in 1 2 3; do printf 'a'; sleep 0.02; printf 'b\\n'; done; printf 'no newline'");
  const std::vector<std::string> expected{"[0] ab", "[0] ab", "[0] ab", "[0] no newline",
                                          "[1] ab", "[1] ab", "[1] ab", "[1] no newline"};
  EXPECT_EQ(outcome.out, expected);
}

TEST(Launch, RelaysAllOfALotOfOutput) {
  const Outcome outcome = launch(4, "seq 1 20000");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.size(), 80'000u);
  EXPECT_TRUE(outcome.has("[3] 20000"));
}

TEST(Launch, ReturnsTheCodeOfTheFirstFailure) {
  EXPECT_EQ(launch(3, "exit 0").code, 0);
  EXPECT_EQ(launch(3, "test $RANK = 1 && exit 7; exit 0").code, 7);
  EXPECT_EQ(launch(3, "test $RANK = 2 && exit 5; sleep 3; exit 6").code, 5);
}

TEST(Launch, AFailingRankLeavesTheOthersTheirGrace) {
  const Outcome outcome = launch(2, "test $RANK = 1 && exit 3; sleep 0.5; echo done", {0ms, 20s});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(outcome.has("[0] done"));
  EXPECT_NE(outcome.err.find("rank 1 has failed with exit status 3; the others have 20000 ms, then SIGTERM, and 20000 "
                             "ms later SIGKILL"),
            std::string::npos)
      << outcome.err;
  EXPECT_LT(outcome.took, 10s);
}

TEST(Launch, ARankThatIgnoresSigtermIsKilledWhenAnotherHasFailed) {
  for (const char* failure : {"exit 3", "kill -9 $$"}) {
    const Outcome outcome = launch(
        2, fmt::format("test $RANK = 1 && {}; trap '' TERM; while :; do sleep 0.05; done", failure), {0ms, 200ms});
    EXPECT_EQ(outcome.code, failure[0] == 'e' ? 3 : 128 + SIGKILL);
    EXPECT_GT(outcome.took, 350ms);
    EXPECT_LT(outcome.took, 5s);
  }
}

/// The end of a pipe that nobody reads any more, a closed one, and a full disk.
TEST(Launch, WhatCannotBeWrittenEndsTheRanksThatWriteOn) {
  for (const char* to : {"| head -1", ">/dev/full", ">&-", "2>&1 >/dev/null | head -1"}) {
    const bool errors = std::string(to).starts_with("2>");
    const std::string rank = errors ? "sh -c 'exec yes >&2'" : "yes";
    const std::string command =
        fmt::format("{{ {} launch -n 2 -- {}; echo code $? >&9; }} {}", FARWARP_PROGRAM, rank, to);
    const Notes notes;
    const auto start = std::chrono::steady_clock::now();
    const Notes script;
    std::ofstream(script.path()) << command;
    const std::string run = fmt::format("timeout 60 sh {} 9>{} >/dev/null 2>&1", script.path(), notes.path());
    ASSERT_GE(std::system(run.c_str()), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s) << to;
    EXPECT_EQ(notes.lines(), std::vector<std::string>{"code 3"}) << to;
  }
}

TEST(Launch, KeepsTheRanksOfOtherLaunchersFromItsOwn) {
  const std::pair<const char*, const char*> others[] = {
      {"SLURM_PROCID", "3"}, {"PMI_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "6"}, {"PMI_RANKS", "kept"}};
  for (const auto& [name, value] : others) setenv(name, value, 1);
  const Outcome outcome = launch(1, "echo $SLURM_PROCID$PMI_RANK$OMPI_COMM_WORLD_SIZE$PMI_RANKS");
  for (const auto& [name, value] : others) unsetenv(name);
  EXPECT_EQ(outcome.out, std::vector<std::string>{"[0] kept"});
}

TEST(Launch, RefusesWhatCannotRun) {
  EXPECT_EQ(launch(0, "true").code, 2);
  EXPECT_EQ(launch(9, "true").code, 2);
  EXPECT_EQ(launch_command(2, {}), 2);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch_command(2, {"/no/such/program"}), 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "farwarp launch: cannot run '/no/such/program': No such file or directory\n");
}

TEST(Launch, AfterADeathTheOthersGetAGraceThenSigterm) {
  const Outcome outcome =
      launch(2, "test $RANK = 1 && kill -9 $$; trap 'echo told to stop; exit 0' TERM; while :; do sleep 0.05; done",
             {0ms, 300ms});
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_TRUE(outcome.has("[0] told to stop"));
  EXPECT_NE(outcome.err.find("rank 1 was ended by signal 9 (Killed)"), std::string::npos) << outcome.err;
  EXPECT_GT(outcome.took, 250ms);
  EXPECT_LT(outcome.took, 5s);
}

TEST(Launch, ThenSigkill) {
  const Outcome outcome =
      launch(2, "test $RANK = 1 && kill -9 $$; trap '' TERM; while :; do sleep 0.05; done", {0ms, 200ms});
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_GT(outcome.took, 350ms);
  EXPECT_LT(outcome.took, 5s);
}

// A rank whose kernel waits for a dead rank reports when its deadline has passed.
TEST(Launch, SurvivorsHaveTheDeadlineOfTheirCommandAndTimeToReport) {
  const std::string script =
      "test $RANK = 1 && kill -9 $$; trap 'echo told to stop; exit 1' TERM; "
      "i=0; while test $i -lt 14; do sleep 0.05; i=$((i+1)); done; echo report; exit 4";
  using Arguments = std::vector<std::string>;
  for (const Arguments& arguments : {Arguments{"--deadline-ms", "8000"}, Arguments{"--x", "--deadline-ms=8000"},
                                     Arguments{"--deadline-ms", "1", "--deadline-ms", "8000"}}) {
    const Outcome outcome = launch(2, script, {{}, 100ms}, {}, arguments);
    EXPECT_EQ(outcome.code, 128 + SIGKILL);
    EXPECT_EQ(outcome.out, std::vector<std::string>{"[0] report"});
    EXPECT_NE(outcome.err.find("the others have 8100 ms"), std::string::npos) << outcome.err;
    EXPECT_LT(outcome.took, 8s) << "who has reported is not waited for";
  }
  const Outcome hanging = launch(2, script, {{}, 100ms}, {}, {"--deadline-ms", "300"});
  EXPECT_EQ(hanging.out, std::vector<std::string>{"[0] told to stop"});
  EXPECT_NE(launch(2, "test $RANK = 1 && kill -9 $$; sleep 0.5; exit 0").err.find("the others have 20000 ms"),
            std::string::npos);
}

TEST(Launch, ARankThatStaysStoppedDoesNotOutliveAFailure) {
  const Outcome outcome =
      launch(3, "test $RANK = 1 && kill -STOP $$; sleep 0.2; test $RANK = 2 && exit 4; exit 0", {0ms, 300ms});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_NE(outcome.err.find("the ranks that are left are stopped"), std::string::npos) << outcome.err;
  EXPECT_LT(outcome.took, 5s);
}

TEST(Launch, ARankThatIsStoppedForAWhileGoesOn) {
  const Notes notes;
  const Outcome outcome = launch(2, "test $RANK = 1 && echo $$ >> " + notes.path() + " && kill -STOP $$; echo done",
                                 {0ms, 100ms}, [&](pid_t) {
                                   notes.wait_for_lines(1);
                                   std::this_thread::sleep_for(300ms);
                                   ::kill(std::stoi(notes.lines().at(0)), SIGCONT);
                                 });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.has("[1] done"));
}

TEST(Launch, ForwardsSignals) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Notes notes;
    const std::string name = signal == SIGINT ? "INT" : "TERM";
    const std::string script = fmt::format(
        "trap 'echo got {0}; exit 0' {0}; echo $$ >> {1}; while :; do sleep 0.02; done", name, notes.path());
    const Outcome outcome = launch(3, script, {}, [&](pid_t launcher) {
      notes.wait_for_lines(3);
      ::kill(launcher, signal);
    });
    EXPECT_EQ(outcome.code, 128 + signal);
    for (const char* rank : {"[0]", "[1]", "[2]"}) EXPECT_TRUE(outcome.has(rank + (" got " + name))) << rank;
  }
}

TEST(Launch, ASecondInterruptKills) {
  const Notes notes;
  const Outcome outcome =
      launch(2, "trap '' INT; echo $$ >> " + notes.path() + "; while :; do sleep 0.02; done", {}, [&](pid_t launcher) {
        notes.wait_for_lines(2);
        ::kill(launcher, SIGINT);
        std::this_thread::sleep_for(100ms);
        ::kill(launcher, SIGINT);
      });
  EXPECT_EQ(outcome.code, 128 + SIGINT);
  EXPECT_LT(outcome.took, 5s) << "not the grace of 10 s";
  for (const std::string& pid : notes.lines()) EXPECT_TRUE(gone(pid));
}

TEST(Launch, LeavesNothingBehind) {
  const Notes notes;
  // A rank's own child runs in the background and holds the pipe open.
  const Outcome outcome = launch(2, "sleep 60 & echo $! >> " + notes.path());
  EXPECT_EQ(outcome.code, 0);
  EXPECT_LT(outcome.took, 5s);
  ASSERT_EQ(notes.lines().size(), 2u);
  for (const std::string& pid : notes.lines()) EXPECT_TRUE(gone(pid));
}

TEST(Launch, RanksDieWithTheLauncher) {
  const Notes notes;
  const Outcome outcome =
      launch(2, "echo $$ >> " + notes.path() + "; while :; do sleep 0.05; done", {}, [&](pid_t launcher) {
        notes.wait_for_lines(2);
        ::kill(launcher, SIGKILL);
      });
  EXPECT_EQ(outcome.code, -SIGKILL);
  for (const std::string& pid : notes.lines()) EXPECT_TRUE(gone(pid));
}

}  // namespace
}  // namespace farwarp::cli
