// farwarp check and bench: operators against their oracles and against the clock, one shape or a whole suite.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "commands.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/report.h"
#include "farwarp/harness/runner.h"
#include "farwarp/machine/kept_file.h"
#include "job.h"
#include "print.h"
#include "version.h"

namespace farwarp::cli {
namespace {

using harness::CaseRequest;
using harness::CaseResult;

// If an interrupt arrives while a file is being replaced, it takes effect after that.
std::atomic<bool> replacing = false, interrupted = false;

void on_interrupt(int) {
  interrupted = true;
  if (replacing) return;
  constexpr char kText[] = "\nfarwarp: interrupted\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(kExitInterrupted);
}

/// Writes the JSON results. A file is replaced as a whole after each case, so an interrupted run keeps the results of finished cases.
class JsonSink {
 public:
  /// Checks the path before anything runs, so that no results are lost to a wrong path.
  Status open(const std::string& path) {
    path_ = path;
    if (path.empty() || to_stdout()) return {};
    std::error_code error;
    const auto type = std::filesystem::status(path, error).type();
    const bool file = type == std::filesystem::file_type::regular,
               fresh = type == std::filesystem::file_type::not_found;
    device_ = type == std::filesystem::file_type::character;
    const std::string folder = std::filesystem::path(path).parent_path().string();
    const bool replaceable = (file || fresh) && access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
    if (!(device_ || replaceable) || (!fresh && access(path.c_str(), W_OK) != 0))
      return invalid_argument(fmt::format("--json is '{}': cannot be written", path));
    if (!file) return {};
    path_ = std::filesystem::canonical(path, error).string();  // replaces the file that a link points to, not the link
    return error ? invalid_argument(fmt::format("--json is '{}': {}", path, error.message())) : Status();
  }
  bool to_stdout() const { return path_ == "-"; }
  void keep(const std::string& text) const {
    if (!path_.empty() && !to_stdout() && !device_) (void)replace(text);  // the last write reports errors
  }
  Status write(const std::string& text) const {
    if (path_.empty()) return {};
    if (!to_stdout() && !device_) return replace(text);
    std::FILE* const stream = to_stdout() ? stdout : std::fopen(path_.c_str(), "w");
    bool written = stream != nullptr && std::fwrite(text.data(), 1, text.size(), stream) == text.size();
    if (stream != nullptr) written = (to_stdout() ? std::fflush(stream) : std::fclose(stream)) == 0 && written;
    return written || to_stdout() ? Status()  // main() reports errors of stdout
                                  : unavailable(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }

 private:
  Status replace(const std::string& text) const {
    replacing = true;
    Status replaced = replace_text(path_, text);
    replacing = false;
    if (interrupted) on_interrupt(SIGINT);
    return replaced;
  }

  std::string path_;
  bool device_ = false;
};

bool wants_colour(int fd) { return isatty(fd) == 1 && std::getenv("NO_COLOR") == nullptr; }

std::vector<CaseResult> run_cases(const Job& job, std::FILE* table, bool quiet, const JsonSink& json) {
  const bool terminal = isatty(STDERR_FILENO) == 1 && !quiet;
  const bool colour = wants_colour(fileno(table));
  const bool bench = !job.cases.empty() && job.cases[0].bench;
  if (!quiet) print_text(table, "{}", bench ? harness::bench_header() : harness::table_header());
  std::vector<CaseResult> results;
  for (const CaseRequest& request : job.cases) {
    const auto progress = [&](int schedule) {
      if (!terminal) return;
      print_text(stderr, "\r\x1b[K[{}/{}] {} {}", results.size() + 1, job.cases.size(), request.op->name,
                 request.label);
      if (request.schedules > 1) print_text(stderr, " schedule {}/{}", schedule + 1, request.schedules);
      std::fflush(stderr);
    };
    results.push_back(harness::run_case(request, job.group, progress));
    if (terminal) print_text(stderr, "\r\x1b[K");
    const bool group_lost = results.back().group_lost;
    const auto row = bench ? harness::bench_rows : harness::table_row;
    if (!quiet || group_lost) print_text(quiet ? stderr : table, "{}", row(results.back(), colour));
    std::fflush(table);
    if (group_lost) break;  // without the other ranks there is nothing more to check
    if (results.size() < job.cases.size())
      json.keep(harness::to_json(results, job.skipped, build_description(), false));
  }
  return results;
}

}  // namespace

int usage_error(std::string_view message) {
  print_text(stderr, "farwarp: {}\n", harness::one_line(message));
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
  if (!quiet && !job->why_target.empty()) print_text(stderr, "{}\n", job->why_target);
  std::signal(SIGINT, on_interrupt);
  // If the JSON goes to stdout, nothing else may: the table goes to stderr.
  std::FILE* table = json.to_stdout() ? stderr : stdout;
  const std::vector<CaseResult> results = run_cases(*job, table, quiet, json);
  if (!quiet) print_text(table, "{}", harness::summary(results, job->skipped));
  const bool complete = results.size() == job->cases.size();
  const Status written = json.write(harness::to_json(results, job->skipped, build_description(), complete));
  if (!written.ok()) usage_error(written.message());
  return std::max(harness::exit_code(results), written.ok() ? 0 : harness::exit_code(written));
}

}  // namespace

int check_command(const CheckOptions& options) { return run_command(options, false); }

int bench_command(const CheckOptions& options) {
  CheckOptions selected = options;
  selected.which = options.which == "all" && !options.suite.empty() ? "benchmarks" : options.which;
  return run_command(selected, true);
}

}  // namespace farwarp::cli
