// farwarp report: what is kept of benches, as a page, as JSON, and as tables of documents.
#include "farwarp/results/report/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "farwarp/base/file.h"
#include "farwarp/harness/runner.h"
#include "farwarp/machine/kept_file.h"
#include "json_sink.h"
#include "print.h"
#include "results_sink.h"

namespace farwarp::cli {
namespace {

constexpr std::size_t kMaxTraceBytes = std::size_t{256} << 20, kMaxDocumentBytes = std::size_t{64} << 20;

Result<std::string> read_named(const char* option, const std::string& path, std::size_t most_bytes) {
  auto text = read_file(path, most_bytes);
  if (text.ok()) return text;
  return Status{text.status().code(), fmt::format("{} is '{}': {}", option, path, text.status().message())};
}

Result<nlohmann::json> report_of(const ReportOptions& options) {
  if (!options.from.empty()) {
    const auto text = read_named("--from", options.from, kMaxDocumentBytes);
    if (!text.ok()) return text.status();
    auto report = results::parse_report(*text);
    if (report.ok()) return report;
    return invalid_argument(fmt::format("--from is '{}': {}", options.from, report.status().message()));
  }
  auto store = open_store(options.results, results::Database::Access::kRead);
  if (!store.ok()) return store.status();
  return results::make_report(*store, {options.suites, options.machine});
}

int rewrite(const ReportOptions& options) {
  int tables = 0, stale = 0;
  std::vector<std::string> texts;
  for (const std::string& path : options.markdown) {  // all are right before one is written
    const auto text = read_named("--markdown", path, kMaxDocumentBytes);
    if (!text.ok()) return fail(text.status());
    auto made = results::with_tables(path, *text);
    if (!made.ok()) return fail(made.status());
    tables += made->tables;
    const bool changed = made->text != *text;
    stale += changed;
    texts.push_back(changed ? std::move(made->text) : std::string());
    if (changed && options.check)
      usage_error(
          fmt::format("{}: a table differs from its data; `farwarp report --markdown {}` writes it", path, path));
  }
  for (std::size_t i = 0; i < texts.size() && !options.check; ++i) {
    if (texts[i].empty()) continue;
    if (Status status = replace_text(options.markdown[i], texts[i]); !status.ok()) return fail(status);
  }
  print_text("{} table{} in {} document{}, {} of them {}\n", tables, tables == 1 ? "" : "s", texts.size(),
             texts.size() == 1 ? "" : "s", stale, options.check ? "to be rewritten" : "rewritten");
  return options.check && stale > 0 ? 1 : 0;
}

}  // namespace

int report_command(const ReportOptions& options) {
  if (!options.markdown.empty()) return rewrite(options);
  if (options.out.empty() && options.json.empty() && options.picture.empty())
    return usage_error("-o, --json, --picture or --markdown is needed: what to write");
  if (options.out == "-" && options.json == "-")
    return usage_error("-o and --json are '-': allowed is one of them on stdout");
  std::vector<std::string> read = options.traces;
  if (!options.from.empty()) read.push_back(options.from);
  if (const auto path = results_path(options.results); options.from.empty() && path.ok()) read.push_back(*path);
  JsonSink page, json, picture;
  Status status = page.open(options.out, read, "-o");
  if (status.ok()) status = json.open(options.json, read);
  if (status.ok()) status = picture.open(options.picture, read, "--picture");
  if (status.ok() && !options.out.empty() && options.out != "-" && options.out == options.json)
    status = invalid_argument(fmt::format("-o and --json are '{}': allowed are two files", options.out));
  if (status.ok() && !options.picture.empty() && (options.picture == options.out || options.picture == options.json))
    status =
        invalid_argument(fmt::format("--picture is '{}', as another output: allowed is another file", options.picture));
  if (!status.ok()) return fail(status);
  std::vector<results::NamedTrace> traces;
  for (const std::string& path : options.traces) {
    auto text = read_named("--trace", path, kMaxTraceBytes);
    if (!text.ok()) return fail(text.status());
    traces.push_back({path, std::move(*text)});
  }
  const auto report = report_of(options);
  if (!report.ok()) return fail(report.status());
  if (!options.out.empty()) {
    const auto html = results::page_of(*report, traces);
    if (!html.ok()) return fail(html.status());
    status = page.write(*html);
  }
  if (status.ok()) status = json.write(results::to_text(*report));
  if (status.ok()) status = picture.write(results::picture_of(*report));
  return status.ok() ? 0 : fail(status);
}

}  // namespace farwarp::cli
