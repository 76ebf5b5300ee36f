#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "farwarp/base/file.h"
#include "farwarp/results/report/report.h"
#include "farwarp/results/report/values.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

constexpr std::string_view kBegin = "<!-- report:", kBeginEnd = "-->", kEnd = "<!-- end of report -->";
constexpr std::size_t kMaxReportBytes = std::size_t{64} << 20;

/// What the marker says.
struct Marker {
  std::map<std::string, std::string> values;
  std::string value(const char* key) const {
    const auto found = values.find(key);
    return found == values.end() ? std::string() : found->second;
  }
};

Result<Marker> parse_marker(std::string_view line) {
  Marker marker;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(' ', at)) != std::string_view::npos) {
    const std::string_view word = line.substr(at, line.find(' ', at) - at);
    at += word.size();
    const std::size_t equals = word.find('=');
    const std::string key(word.substr(0, equals));
    if (equals == std::string_view::npos ||
        (key != "data" && key != "suite" && key != "ranks" && key != "settings" && key != "op" && key != "table"))
      return invalid_argument(
          fmt::format("'{}'; allowed: data=, suite=, ranks=, settings=, op=, table= with a value", word));
    marker.values[key] = word.substr(equals + 1);
  }
  if (marker.value("data").empty()) return invalid_argument("data= is needed: the JSON file that the table is made of");
  const std::string table = marker.value("table");
  if (!table.empty() && table != "cases" && table != "means" && table != "taxes")
    return invalid_argument(fmt::format("table={}; allowed: cases, means, taxes", table));
  if (table == "means" && marker.values.contains("op"))
    return invalid_argument("op= and table=means; allowed: op= with cases or taxes");
  return marker;
}

/// A text fit for a table's cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '\\' || c == '`' || c == '*' || c == '_') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

bool matches(const Marker& marker, const json& of) {
  const auto agrees = [&](const char* key, const std::string& is) {
    return !marker.values.contains(key) || marker.value(key) == is;
  };
  return agrees("suite", text(of, "suite")) && agrees("ranks", fmt::format("{:g}", number(of, "ranks").value_or(0))) &&
         agrees("settings", text(of, "settings"));
}

std::string case_rows(const Marker& marker, const json& suite) {
  std::string rows;
  for (const json& one : list(suite, "cases")) {
    if (marker.values.contains("op") && marker.value("op") != text(one, "op")) continue;
    const std::string refused = text(one, "refused");
    const bool beside = number(one, "baseline_us").has_value();
    rows += fmt::format("| {} {} | {} | {} | {}{} | {} | {} | {} |\n", cell(text(one, "op")), cell(text(one, "label")),
                        cell(text(one, "shape")), shown(one, "floor_us"), shown(one, "ours_us"),
                        refused.empty() ? "" : fmt::format(" (does not count: {})", cell(refused)),
                        shown(one, "times_floor"),
                        beside ? fmt::format("{} {}", cell(text(one, "baseline")), shown(one, "baseline_us")) : "-",
                        shown(one, "speedup"));
  }
  if (rows.empty()) return rows;
  return "| case | shape | floor us | farwarp us | x floor | fastest baseline us | baseline / farwarp |\n"
         "|---|---|---|---|---|---|---|\n" +
         rows;
}

std::string mean_row(const json& suite) {
  const json& mean = member(suite, "mean");
  return fmt::format("| {} | {} | {} | {} | {} |\n", cell(title_of(suite)), list(suite, "cases").size(),
                     shown(mean, "ours_us"), shown(mean, "times_floor"), shown(mean, "speedup"));
}

std::string tax_rows(const Marker& marker, const json& report) {
  std::string rows;
  for (const json& tax : list(report, "taxes")) {
    if (!matches(marker, tax)) continue;
    if (marker.values.contains("op") && !(text(tax, "case") + " ").starts_with(marker.value("op") + " ")) continue;
    rows +=
        fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", cell(text(tax, "case")), cell(text(tax, "baseline")),
                    shown(tax, "baseline_us"), shown(tax, "launch_us"), shown(tax, "bulk_us"),
                    shown(tax, "locality_us"), shown(tax, "rest_us"), shown(tax, "fused_us"));
  }
  if (rows.empty()) return rows;
  return "| case | baseline | us | launch | bulk synchronisation | locality | not explained | fused us |\n"
         "|---|---|---|---|---|---|---|---|\n" +
         rows;
}

/// Adds the runs that have made the cases or taxes of a table.
void add_runs(const json& rows, std::set<double>& runs) {
  for (const json& row : rows)
    if (const auto run = number(row, "run")) runs.insert(*run);
}

/// "amd2025 on 2 ranks; NVIDIA H200, 2026-11-28, commit 0123." `runs`: those of the table.
std::string origin_of(const json& report, const std::string& title, const std::set<double>& runs) {
  std::string days, commits;
  for (const json& run : list(report, "runs")) {
    if (!runs.contains(number(run, "id").value_or(-1))) continue;
    const std::string day = text(run, "began").substr(0, 10), commit = text(run, "commit");
    if (days.find(day) == std::string::npos) days += ", " + day;
    if (commits.find(commit) == std::string::npos) commits += (commits.empty() ? "; commit " : ", ") + commit;
  }
  return fmt::format("{}{}: {}{}{}.{}\n\n", title, title.empty() ? "Measured" : "", cell(text(report, "machine")), days,
                     cell(commits), flag(report, "times_have_meaning") ? "" : fmt::format(" **{}**.", kNoMeaning));
}

std::set<double> runs_of(const json& suite) {
  std::set<double> runs;
  add_runs(list(suite, "cases"), runs);
  return runs;
}

Result<std::string> table_of(const Marker& marker, const json& report) {
  std::string made, means;
  std::set<double> runs;
  const std::string table = marker.value("table");
  if (table == "taxes") {
    made = tax_rows(marker, report);
    for (const json& tax : list(report, "taxes"))
      if (matches(marker, tax)) add_runs(json::array({tax}), runs);
    if (!made.empty()) made = origin_of(report, "", runs) + made;
  } else {
    for (const json& suite : list(report, "suites")) {
      if (!matches(marker, suite)) continue;
      means += mean_row(suite);
      add_runs(list(suite, "cases"), runs);
      const std::string rows = case_rows(marker, suite);
      if (!rows.empty() && table != "means")
        made += (made.empty() ? "" : "\n") + origin_of(report, cell(title_of(suite)), runs_of(suite)) + rows;
    }
    if (table == "means" && !means.empty())
      made = origin_of(report, "", runs) +
             "| geometric means | cases | farwarp us | x floor | baseline / farwarp |\n|---|---|---|---|---|\n" + means;
  }
  if (made.empty())
    return invalid_argument(fmt::format("'{}' has nothing of what the marker names", marker.value("data")));
  return "\n" + made + "\n";
}

Result<std::string> table_for(std::string_view marker_text, const std::filesystem::path& folder) {
  const auto marker = parse_marker(marker_text);
  if (!marker.ok()) return marker.status();
  const std::string data = marker->value("data");
  const auto source = read_file(folder / data, kMaxReportBytes);
  if (!source.ok()) return invalid_argument(fmt::format("data={}: {}", data, source.status().message()));
  const auto report = parse_report(*source);
  if (!report.ok()) return invalid_argument(fmt::format("data={}: {}", data, report.status().message()));
  return table_of(*marker, *report);
}

}  // namespace

Result<Document> with_tables(const std::string& path, const std::string& text) {
  Document made;
  std::size_t at = 0;
  for (;;) {
    const std::size_t begin = text.find(kBegin, at);
    made.text += text.substr(at, begin - at);
    if (begin == std::string::npos) return made;
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
    const auto wrong = [&](const std::string& what) {
      return invalid_argument(fmt::format("{}:{}: {}", path, line, what));
    };
    const std::size_t close = text.find(kBeginEnd, begin), end = text.find(kEnd, begin);
    const std::size_t next = text.find(kBegin, begin + kBegin.size());
    if (close == std::string::npos || end == std::string::npos || close > end || next < end)
      return wrong(fmt::format("the report has no '{}'", kEnd));
    const std::string_view values = std::string_view(text).substr(begin + kBegin.size(), close - begin - kBegin.size());
    const auto table = table_for(values, std::filesystem::path(path).parent_path());
    if (!table.ok()) return wrong(table.status().message());
    made.text += text.substr(begin, close + kBeginEnd.size() - begin) + "\n" + *table + std::string(kEnd);
    ++made.tables;
    at = end + kEnd.size();
  }
}

}  // namespace farwarp::results
