// farwarp check and bench: operators against their oracles and against the clock, one shape or a whole suite.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "commands.h"
#include "farwarp/harness/report.h"
#include "farwarp/harness/runner.h"
#include "job.h"
#include "version.h"

namespace farwarp::cli {
namespace {

using harness::CaseRequest;
using harness::CaseResult;

/// Where JSON goes. Opened before anything runs: a run's results must not be lost to a wrong path.
class JsonSink {
 public:
  Status open(const std::string& path) {
    path_ = path;
    if (!path.empty() && !to_stdout()) file_.open(path, std::ios::trunc);
    if (!path.empty() && !to_stdout() && !file_)
      return invalid_argument(fmt::format("--json is '{}': cannot be written", path));
    return {};
  }
  bool to_stdout() const { return path_ == "-"; }
  Status write(const std::string& text) {
    std::ostream& stream = to_stdout() ? std::cout : static_cast<std::ostream&>(file_);
    if (path_.empty() || (stream << text << std::flush)) return {};
    return invalid_argument(fmt::format("--json is '{}': cannot be written", path_));
  }

 private:
  std::string path_;
  std::ofstream file_;
};

bool wants_colour(int fd) { return isatty(fd) == 1 && std::getenv("NO_COLOR") == nullptr; }

void on_interrupt(int) {
  constexpr char kText[] = "\nfarwarp: interrupted\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(kExitInterrupted);
}

std::vector<CaseResult> run_cases(const Job& job, std::FILE* table, bool quiet) {
  const bool terminal = isatty(STDERR_FILENO) == 1 && !quiet;
  const bool colour = wants_colour(fileno(table));
  const bool bench = !job.cases.empty() && job.cases[0].bench;
  if (!quiet) fmt::print(table, "{}", bench ? harness::bench_header() : harness::table_header());
  std::vector<CaseResult> results;
  for (const CaseRequest& request : job.cases) {
    const auto progress = [&](int schedule) {
      if (!terminal) return;
      fmt::print(stderr, "\r\x1b[K[{}/{}] {} {}", results.size() + 1, job.cases.size(), request.op->name,
                 request.label);
      if (request.schedules > 1) fmt::print(stderr, " schedule {}/{}", schedule + 1, request.schedules);
      std::fflush(stderr);
    };
    results.push_back(harness::run_case(request, job.group, progress));
    if (terminal) fmt::print(stderr, "\r\x1b[K");
    const bool alone = results.back().alone;
    const auto row = bench ? harness::bench_rows : harness::table_row;
    if (!quiet || alone) fmt::print(quiet ? stderr : table, "{}", row(results.back(), colour));
    std::fflush(table);
    if (alone) break;  // without the other ranks there is nothing more to check
  }
  return results;
}

}  // namespace

int usage_error(std::string_view message) {
  fmt::print(stderr, "farwarp: {}\n", message);
  return kExitUsage;
}

namespace {

int run_command(const CheckOptions& options, bool bench) {
  const auto job = make_job(options, bench ? "bench" : "");
  if (!job.ok()) {
    usage_error(job.status().message());
    return harness::exit_code(job.status());
  }
  const bool quiet = job->group != nullptr && job->group->rank() != 0;
  JsonSink json;
  if (Status status = json.open(quiet ? "" : options.json); !status.ok()) return usage_error(status.message());
  if (!quiet && !job->why_target.empty()) fmt::print(stderr, "{}\n", job->why_target);
  std::signal(SIGINT, on_interrupt);
  // JSON on stdout stands alone there; the table then goes to stderr.
  std::FILE* table = json.to_stdout() ? stderr : stdout;
  const std::vector<CaseResult> results = run_cases(*job, table, quiet);
  if (!quiet) fmt::print(table, "{}", harness::summary(results, job->skipped));
  if (Status status = json.write(harness::to_json(results, job->skipped, build_description())); !status.ok()) {
    return usage_error(status.message());
  }
  return harness::exit_code(results);
}

}  // namespace

int check_command(const CheckOptions& options) { return run_command(options, false); }

int bench_command(const CheckOptions& options) {
  CheckOptions selected = options;
  selected.which = options.which == "all" && !options.suite.empty() ? "benchmarks" : options.which;
  return run_command(selected, true);
}

}  // namespace farwarp::cli
