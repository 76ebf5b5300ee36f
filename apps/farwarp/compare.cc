// farwarp compare: is B faster than A, or slower? Of kept results, or of two programs that it runs in turn.
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "commands.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"
#include "farwarp/results/comparison.h"
#include "json_sink.h"
#include "print.h"
#include "results_sink.h"

namespace farwarp::cli {
namespace {

using results::Database;
using results::Side;
using results::Store;

enum class Kind : std::uint8_t { kRuns, kLabel, kDatabase, kProgram };

Status about(const char* letter, const std::string& name, const Status& status) {
  return {status.code(), fmt::format("{} is '{}': {}", letter, name, status.message())};
}

Kind kind_of(const std::string& name) {
  if (name.find_first_not_of("0123456789,") == std::string::npos) return Kind::kRuns;
  if (name.find('/') == std::string::npos && !name.ends_with(".db")) return Kind::kLabel;
  std::error_code error;
  const bool program = std::filesystem::is_regular_file(name, error) && access(name.c_str(), X_OK) == 0;
  return program ? Kind::kProgram : Kind::kDatabase;
}

Result<std::vector<std::int64_t>> parse_runs(const std::string& name) {
  std::vector<std::int64_t> ids;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find(',', begin), name.size());
    const auto id =
        harness::parse_integer("run", name.substr(begin, end - begin), 1, std::numeric_limits<std::int64_t>::max());
    if (!id.ok()) return id.status();
    if (std::find(ids.begin(), ids.end(), *id) != ids.end())
      return invalid_argument(fmt::format("run {} is named twice; allowed: each run once", *id));
    ids.push_back(*id);
    begin = end + 1;
  }
  return ids;
}

Result<Side> read_side(const char* letter, const std::string& name, const std::string& results) {
  const Kind kind = kind_of(name);
  if (kind == Kind::kDatabase) {
    std::error_code error;
    if (!std::filesystem::exists(name, error))
      return about(letter, name, invalid_argument("there is no such database or program"));
    auto store = Store::open(name, Database::Access::kRead);
    auto side = store.ok() ? results::newest_side(*store, name, "") : Result<Side>(store.status());
    return side.ok() ? std::move(side) : about(letter, name, side.status());
  }
  auto store = open_store(results, Database::Access::kRead);
  if (!store.ok()) return store.status();
  Result<Side> side = invalid_argument("");
  if (kind == Kind::kRuns) {
    const auto ids = parse_runs(name);
    side = ids.ok() ? results::side_of_runs(*store, name, *ids) : Result<Side>(ids.status());
  } else {
    side = results::newest_side(*store, name, name);
  }
  return side.ok() ? std::move(side) : about(letter, name, side.status());
}

/// Runs the program with its output on our stderr. Its exit code; an error if it had none.
Result<int> run_program(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return invalid_argument(std::strerror(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return internal_error(std::strerror(errno));
  }
  if (!WIFEXITED(status)) return Status{StatusCode::kAborted, fmt::format("was ended by signal {}", WTERMSIG(status))};
  return WEXITSTATUS(status);
}

std::vector<std::string> bench_of(const std::string& program, const CompareOptions& options, const std::string& label) {
  const CheckOptions& bench = options.bench;
  std::vector<std::string> arguments = {program, "bench"};
  if (!bench.what.empty()) arguments.push_back(bench.what);
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {option, value});
  };
  add("--suite", bench.suite);
  add("--which", bench.which);
  add("--target", bench.target);
  add("--ranks", bench.ranks);
  for (const std::string& setting : bench.settings) add("--set", setting);
  add("--seed", bench.seed);
  add("--deadline-ms", bench.deadline_ms);
  add("--samples", bench.samples);
  if (bench.no_baselines) arguments.push_back("--no-baselines");
  add("--results", bench.results);
  add("--label", label);
  return arguments;
}

/// A, B, B, A: what drifts during the session adds as much to one as to the other.
Result<std::pair<Side, Side>> bench_in_turn(const CompareOptions& options) {
  const std::string session =
      fmt::format("compare {:%Y-%m-%dT%H:%M:%SZ} {}",
                  fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())), getpid());
  const std::string names[] = {options.a, options.b}, letters[] = {"A", "B"};
  for (const int turn : {0, 1, 1, 0}) {
    const auto arguments = bench_of(names[turn], options, fmt::format("{} {}", session, letters[turn]));
    print_text(stderr, "{}: {}\n", letters[turn], fmt::join(arguments, " "));
    const auto code = run_program(arguments);
    if (!code.ok()) return about(letters[turn].c_str(), names[turn], code.status());
    if (*code == 0 || *code == 1) continue;  // 1: a case failed, which is kept and shown
    const StatusCode why = *code == 3   ? StatusCode::kUnavailable
                           : *code == 4 ? StatusCode::kDeadline
                                        : StatusCode::kInvalidArgument;
    return Status{why, fmt::format("{} is '{}': its bench ended with exit code {}", letters[turn], names[turn], *code)};
  }
  auto store = open_store(options.bench.results, Database::Access::kRead);
  if (!store.ok()) return store.status();
  const auto runs = store->runs();
  if (!runs.ok()) return runs.status();
  std::vector<Side> sides;
  for (int i = 0; i < 2; ++i) {
    std::vector<std::int64_t> ids;
    for (const auto& run : *runs) {
      if (run.label == fmt::format("{} {}", session, letters[i])) ids.push_back(run.id);
    }
    if (ids.empty()) return about(letters[i].c_str(), names[i], invalid_argument("it kept no results"));
    auto side = results::side_of_runs(*store, names[i], ids);
    if (!side.ok()) return about(letters[i].c_str(), names[i], side.status());
    sides.push_back(std::move(*side));
  }
  return std::pair(std::move(sides[0]), std::move(sides[1]));
}

/// The options of a bench say nothing about results that there are.
Status check_no_bench(const CheckOptions& bench) {
  const auto refuse = [](const std::string& option, const std::string& value) {
    return invalid_argument(
        fmt::format("{} is '{}': allowed only if A and B are programs, which compare runs", option, value));
  };
  if (!bench.what.empty()) return refuse("what", bench.what);
  for (const auto& [option, value] :
       {std::pair("--suite", &bench.suite), std::pair("--which", &bench.which), std::pair("--target", &bench.target),
        std::pair("--ranks", &bench.ranks), std::pair("--seed", &bench.seed),
        std::pair("--deadline-ms", &bench.deadline_ms), std::pair("--samples", &bench.samples)}) {
    if (!value->empty()) return refuse(option, *value);
  }
  if (!bench.settings.empty()) return refuse("--set", bench.settings.front());
  return bench.no_baselines ? invalid_argument("--no-baselines is given: allowed only if A and B are programs")
                            : Status();
}

Result<std::pair<Side, Side>> sides_of(const CompareOptions& options) {
  const bool programs = kind_of(options.a) == Kind::kProgram;
  if (programs != (kind_of(options.b) == Kind::kProgram))
    return invalid_argument(fmt::format("A is '{}' and B is '{}': allowed are two programs, or kept results of both",
                                        options.a, options.b));
  if (programs) return bench_in_turn(options);
  if (Status status = check_no_bench(options.bench); !status.ok()) return status;
  auto a = read_side("A", options.a, options.bench.results);
  if (!a.ok()) return a.status();
  auto b = read_side("B", options.b, options.bench.results);
  if (!b.ok()) return b.status();
  return std::pair(std::move(*a), std::move(*b));
}

}  // namespace

int compare_command(const CompareOptions& options) {
  JsonSink json;
  const auto path = results_path(options.bench.results);
  if (Status status = json.open(options.bench.json, {options.a, options.b, path.ok() ? *path : ""}); !status.ok())
    return fail(status);
  report_interrupts();
  auto sides = sides_of(options);
  if (!sides.ok()) return fail(sides.status());
  const auto comparison = results::compare(std::move(sides->first), std::move(sides->second));
  if (!comparison.ok()) return fail(comparison.status());
  print_text(json.to_stdout() ? stderr : stdout, "{}", results::to_text(*comparison));
  const Status written = json.write(results::to_json(*comparison));
  if (!written.ok()) return fail(written);
  if (comparison->count(results::Verdict::kSlower) > 0 || comparison->failed() > 0) return 1;
  return options.strict && comparison->count(results::Verdict::kUndecided) > 0 ? 2 : 0;
}

}  // namespace farwarp::cli
