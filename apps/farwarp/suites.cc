// farwarp suites: what suites there are, and the cases of one.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "commands.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/problem.h"
#include "farwarp/harness/runner.h"
#include "farwarp/harness/suite.h"
#include "formats/any_suite.h"
#include "formats/export_flashinfer.h"
#include "json_sink.h"
#include "print.h"

namespace farwarp::cli {
namespace {

using harness::Suite;
using harness::SuiteEntry;
using harness::SuiteGroup;
using nlohmann::json;

constexpr int kSchemaVersion = 1;

struct Counts {
  int tests = 0, benchmarks = 0;
};

struct Overview {
  Counts all;
  std::map<std::string, Counts> of_op;
  std::set<int> ranks;
};

Overview overview_of(const Suite& suite) {
  Overview overview;
  for (const SuiteEntry& entry : suite.entries) {
    for (Counts* counts : {&overview.all, &overview.of_op[entry.op]})
      ++(entry.group == SuiteGroup::kTests ? counts->tests : counts->benchmarks);
    overview.ranks.insert(entry.ranks);
  }
  return overview;
}

/// The operator's parameters in their order; of an operator that is not in this build, in that of names.
std::string shown_params(const SuiteEntry& entry) {
  if (const auto* op = harness::find_operator(entry.op)) return harness::to_string(entry.params, op->params);
  std::string text;
  for (const auto& [name, value] : entry.params)
    harness::append_to_list(text, " ", fmt::format("{}={}", harness::one_line(name), harness::one_line(value)));
  return text;
}

std::string label_of(const SuiteEntry& entry) { return fmt::format("{}[{}]", name_of(entry.group), entry.index); }

void print_overview(std::FILE* table, const Suite& suite) {
  const Overview overview = overview_of(suite);
  std::string ops, ranks;
  for (const auto& [op, counts] : overview.of_op)
    harness::append_to_list(ops, ", ", fmt::format("{} {}", harness::one_line(op), counts.tests + counts.benchmarks));
  for (const int number : overview.ranks) harness::append_to_list(ranks, ", ", std::to_string(number));
  print_text(table, "{:<12} {:>5} {:>10}  {:<8} {}\n", harness::one_line(suite.name), overview.all.tests,
             overview.all.benchmarks, ranks, ops);
  for (const auto& text : {suite.title, suite.source.empty() ? "" : "source: " + suite.source}) {
    if (!text.empty()) print_text(table, "{:<12} {}\n", "", harness::one_line(text));
  }
}

void print_header(std::FILE* table) {
  print_text(table, "{:<12} {:>5} {:>10}  {:<8} {}\n", "suite", "tests", "benchmarks", "ranks", "operators, cases");
}

void print_cases(std::FILE* table, const Suite& suite) {
  for (const SuiteEntry& entry : suite.entries) {
    std::string line = fmt::format("{} {} ranks={} {} seed={}", harness::one_line(entry.op), label_of(entry),
                                   entry.ranks, shown_params(entry), entry.seed);
    if (entry.speed_of_light_us) line += fmt::format(" speed_of_light_us={}", *entry.speed_of_light_us);
    if (!entry.about.empty()) line += fmt::format(" ({})", harness::one_line(entry.about));
    print_text(table, "{}\n", line);
  }
  std::set<std::string> sources;
  for (const SuiteEntry& entry : suite.entries) {
    if (!entry.source.empty() && sources.insert(entry.source).second)
      print_text(table, "source: {}\n", harness::one_line(entry.source));
  }
}

json case_json(const SuiteEntry& entry) {
  json result = {{"op", entry.op},     {"label", label_of(entry)}, {"ranks", entry.ranks}, {"params", entry.params},
                 {"seed", entry.seed}, {"source", entry.source},   {"about", entry.about}};
  if (entry.speed_of_light_us) result["speed_of_light_us"] = *entry.speed_of_light_us;
  return result;
}

json suite_json(const Suite& suite, bool cases) {
  const Overview overview = overview_of(suite);
  json ops = json::object();
  for (const auto& [op, counts] : overview.of_op)
    ops[op] = {{"tests", counts.tests}, {"benchmarks", counts.benchmarks}};
  json result = {{"name", suite.name},      {"title", suite.title},        {"source", suite.source},
                 {"ranks", overview.ranks}, {"tests", overview.all.tests}, {"benchmarks", overview.all.benchmarks},
                 {"operators", ops}};
  if (!cases) return result;
  result["cases"] = json::array();
  for (const SuiteEntry& entry : suite.entries) result["cases"].push_back(case_json(entry));
  return result;
}

/// The suite's cases of one operator, or the operator's defaults on eight ranks.
int export_command(const SuitesCommandOptions& options) {
  std::vector<SuiteEntry> entries;
  if (options.what.empty()) {
    SuiteEntry entry;
    entry.op = options.export_flashinfer;
    entry.group = SuiteGroup::kBenchmarks;
    entry.ranks = harness::kMaxSuiteRanks;
    entries.push_back(entry);
  } else {
    auto loaded = load_any_suite(options.what, "");
    if (!loaded.ok()) return usage_error(loaded.status().message());
    for (SuiteEntry& entry : loaded->suite.entries) {
      if (entry.op == options.export_flashinfer) entries.push_back(std::move(entry));
    }
  }
  const auto files = export_flashinfer(options.export_flashinfer, entries, options.out);
  if (!files.ok()) {
    usage_error(files.status().message());
    return harness::exit_code(files.status());
  }
  if (files->empty())
    return usage_error(
        fmt::format("suite {} has no case of {}", options.what, harness::one_line(options.export_flashinfer)));
  for (const std::string& file : *files) print_text("{}\n", harness::one_line(file));
  return 0;
}

}  // namespace

int suites_command(const SuitesCommandOptions& options) {
  const bool one = !options.what.empty(), exports = !options.export_flashinfer.empty();
  if (exports != !options.out.empty())
    return usage_error("--export-flashinfer needs -o FOLDER, and -o needs --export-flashinfer OP");
  if (exports) return export_command(options);
  std::vector<Suite> suites;
  std::vector<std::string> files;
  harness::SkippedByOp skipped;
  for (const std::string& name : one ? std::vector{options.what} : harness::suite_names()) {
    auto loaded = load_any_suite(name, "");
    if (!loaded.ok()) return usage_error(loaded.status().message());
    suites.push_back(std::move(loaded->suite));
    files.insert(files.end(), loaded->files.begin(), loaded->files.end());
    skipped.merge(loaded->skipped);
  }
  JsonSink sink;
  if (const Status status = sink.open(options.json, files); !status.ok()) return usage_error(status.message());
  std::FILE* table = sink.to_stdout() ? stderr : stdout;
  print_header(table);
  for (const Suite& suite : suites) print_overview(table, suite);
  if (one) print_cases(table, suites[0]);
  for (const auto& [name, why] : skipped)
    print_text(table, "left out: {}, {} cases: {}\n", harness::one_line(name), why.cases, why.reason);
  json all = json::array();
  for (const Suite& suite : suites) all.push_back(suite_json(suite, one));
  const json root = {{"schema_version", kSchemaVersion}, {"suites", all}};
  const Status written = sink.write(root.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  if (written.ok()) return 0;
  usage_error(written.message());
  return harness::exit_code(written);
}

}  // namespace farwarp::cli
