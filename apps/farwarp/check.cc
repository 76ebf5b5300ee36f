// farwarp check and bench: operators against their oracles and against the clock, one shape or a whole suite.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "commands.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/report.h"
#include "farwarp/harness/runner.h"
#include "farwarp/harness/taxes_report.h"
#include "json_sink.h"
#include "print.h"
#include "results_sink.h"
#include "run_job.h"
#include "version.h"

namespace farwarp::cli {
namespace {

using harness::CaseRequest;
using harness::CaseResult;

bool wants_colour(int fd) { return isatty(fd) == 1 && std::getenv("NO_COLOR") == nullptr; }

/// What plans call what --set calls otherwise. Of two that begin alike the longer one is first.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"MoeAllToAllDesc.hidden ", "parameter hidden_dim "},
    {"MoeAllToAllDesc.max_tokens ", "parameter max_num_tokens "},
    {" and max_tokens ", " and max_num_tokens "},
    {"AttentionDesc.max_queries ", "parameter queries "},
    {"AttentionDesc.max_keys ", "parameter keys "},
    {"* max_queries ", "* queries "},
    {"Qwen3Limits.sequences ", "parameter batch "},
    {"Qwen3Limits.prefill_tokens ", "parameter prefill "},
    {"MoeLayerDesc.hidden ", "parameter hidden_dim "},
    {"MoeLayerDesc.max_tokens ", "parameter max_num_tokens "},
    {"MoeAllToAllDesc.", "parameter "},
    {"MoeLayerDesc.", "parameter "},
    {"AttentionDesc.", "parameter "},
    {"FlashDecodeDesc.", "parameter "},
    {"ParallelGemmDesc.", "parameter "},
    {"GroupedGemmDesc.", "parameter "},
    {"GemmDesc.", "parameter "},
    {"AllReduceDesc.", "parameter "},
    {"Qwen3Limits.", "parameter "},
    {"Qwen3Call.", "parameter "},
};

void name_parameters(harness::CheckOutcome& outcome) {
  for (const auto& [field, parameter] : kNames) {
    for (std::size_t at = 0; (at = outcome.detail.find(field, at)) != std::string::npos; at += parameter.size())
      outcome.detail.replace(at, field.size(), parameter);
  }
}

/// What the table shows.
struct Table {
  std::string (*header)();
  std::string (*rows)(const CaseResult&, bool);
};

Table table_of(const CaseRequest& request) {
  if (!request.bench) return {harness::table_header, harness::table_row};
  if (request.bench->taxes) return {harness::taxes_header, harness::taxes_rows};
  return {harness::bench_header, harness::bench_rows};
}

/// ", 2:05 left": as long as the cases so far, each.
std::string remaining(const std::vector<CaseResult>& done, std::size_t all) {
  if (done.empty()) return "";
  double seconds = 0;
  for (const CaseResult& result : done) seconds += result.seconds;
  const auto left =
      static_cast<int>(seconds / static_cast<double>(done.size()) * static_cast<double>(all - done.size()));
  return fmt::format(", {}:{:02} left", left / 60, left % 60);
}

std::vector<CaseResult> run_cases(const Job& job, std::FILE* table, bool quiet, const JsonSink& json, ResultsSink& kept,
                                  const Runner& runner) {
  const bool terminal = isatty(STDERR_FILENO) == 1 && !quiet;
  const bool colour = wants_colour(fileno(table));
  const auto [header, rows] = table_of(job.cases[0]);
  if (!quiet) print_text(table, "{}", header());
  std::vector<CaseResult> results;
  for (const CaseRequest& request : job.cases) {
    const auto progress = [&](int schedule) {
      if (!terminal) return;
      print_text(stderr, "\r\x1b[K[{}/{}{}] {} {}", results.size() + 1, job.cases.size(),
                 remaining(results, job.cases.size()), request.op->name, request.label);
      if (request.schedules > 1) print_text(stderr, " schedule {}/{}", schedule + 1, request.schedules);
      std::fflush(stderr);
    };
    results.push_back(runner.run(request, job.group, progress));
    name_parameters(results.back().outcome);
    name_parameters(results.back().bench.check);
    if (results.back().request.bench) kept.keep(results.back(), runner.entry);
    if (terminal) print_text(stderr, "\r\x1b[K");
    const bool group_lost = results.back().group_lost;
    if (!quiet || group_lost) print_text(quiet ? stderr : table, "{}", rows(results.back(), colour));
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

int fail(const Status& status) {
  usage_error(status.message());
  return harness::exit_code(status);
}

int run_job(const CheckOptions& options, const Result<Job>& job, const Runner& runner) {
  if (!job.ok()) return fail(job.status());
  const bool quiet = job->group != nullptr && job->group->rank() != 0;
  ResultsSink kept;
  if (job->cases[0].bench && !quiet) {
    if (Status status = kept.open(options, job->origin, build_description()); !status.ok())
      return usage_error(status.message());
  }
  std::vector<std::string> read = job->files;
  read.push_back(kept.path());
  JsonSink json;
  if (Status status = json.open(quiet ? "" : options.json, read); !status.ok()) return usage_error(status.message());
  if (!quiet && !job->why_target.empty()) print_text(stderr, "{}\n", job->why_target);
  report_interrupts();
  // If the JSON goes to stdout, nothing else may: the table goes to stderr.
  std::FILE* table = json.to_stdout() ? stderr : stdout;
  const std::vector<CaseResult> results = run_cases(*job, table, quiet, json, kept, runner);
  const bool complete = results.size() == job->cases.size();
  const Status stored = kept.finish(complete);
  if (!quiet) print_text(table, "{}{}", harness::summary(results, job->skipped), kept.summary());
  if (!stored.ok()) usage_error(stored.message());
  const Status written = json.write(harness::to_json(results, job->skipped, build_description(), complete));
  if (!written.ok()) usage_error(written.message());
  const auto code_of = [](const Status& status) { return status.ok() ? 0 : harness::exit_code(status); };
  return std::max({harness::exit_code(results), code_of(stored), code_of(written)});
}

namespace {

/// Of a suite, its benchmarks.
CheckOptions benchmarks_of(CheckOptions options) {
  if (options.which == "all" && !options.suite.empty()) options.which = "benchmarks";
  return options;
}

Result<harness::PlantedTax> parse_added_tax(const std::string& text) {
  using harness::PlantedTax;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string kind = text.substr(0, colon), amount = text.substr(std::min(colon + 1, text.size()));
  if (text.empty()) return PlantedTax{};
  if (text == "flush") return PlantedTax{.kind = PlantedTax::Kind::kFlush};
  const bool sleeps = kind == "sleep";
  if (!sleeps && kind != "launches")
    return invalid_argument(fmt::format("--add-tax is '{}': allowed is sleep:US, flush or launches:N", text));
  const auto number = harness::parse_integer("--add-tax " + kind, amount, 1, sleeps ? 100'000 : 1000);
  if (!number.ok()) return number.status();
  return sleeps ? PlantedTax{.kind = PlantedTax::Kind::kSleep, .sleep_us = static_cast<double>(*number)}
                : PlantedTax{.kind = PlantedTax::Kind::kLaunches, .launches = static_cast<int>(*number)};
}

/// Cases of operators that have no baseline of several kernels are counted as skipped.
Status keep_those_with_taxes(Job& job) {
  std::string names;
  for (const harness::OperatorInfo& op : harness::registered_ops()) {
    if (op.has_taxes) harness::append_to_list(names, ", ", op.name);
  }
  for (const CaseRequest& request : job.cases) {
    if (request.op->has_taxes) continue;
    harness::Skipped& skipped = job.skipped[request.op->name];
    ++skipped.cases;
    skipped.reason = "no baseline of several kernels";
  }
  const std::string first = job.cases[0].op->name;
  std::erase_if(job.cases, [](const CaseRequest& request) { return !request.op->has_taxes; });
  if (!job.cases.empty()) return {};
  return invalid_argument(
      fmt::format("{} has no baseline of several kernels, so it has no taxes: allowed is {}", first, names));
}

}  // namespace

int check_command(const CheckOptions& options) { return run_job(options, make_job(options, "")); }

int bench_command(const CheckOptions& options) {
  const CheckOptions selected = benchmarks_of(options);
  return run_job(selected, make_job(selected, "bench"));
}

int taxes_command(const CheckOptions& options, const std::string& added) {
  const CheckOptions selected = benchmarks_of(options);
  const auto planted = parse_added_tax(added);
  auto job = make_job(selected, "taxes");
  if (job.ok() && !planted.ok()) job = planted.status();
  if (job.ok()) {
    if (Status status = keep_those_with_taxes(*job); !status.ok()) job = status;
  }
  if (job.ok()) {
    for (CaseRequest& request : job->cases) request.bench->taxes = *planted;
  }
  return run_job(selected, job);
}

}  // namespace farwarp::cli
