#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "farwarp/harness/case.h"
#include "farwarp/harness/params.h"
#include "farwarp/results/report/report.h"
#include "farwarp/results/statistics.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

/// Suite (cases of none are last), ranks, settings.
using GroupKey = std::tuple<bool, std::string, int, std::string>;
/// Operator, number in its label, label, parameters of a case without one.
using CaseKey = std::tuple<std::string, int, std::string, std::string>;
using Group = std::map<CaseKey, CaseRecord>;

struct Chosen {
  std::map<GroupKey, Group> groups;
  std::map<std::tuple<std::string, std::string, int, std::string>, TaxRecord> taxes;
  std::map<std::int64_t, RunRecord> runs;
};

json known(double value) { return value > 0 ? json(value) : json(); }
json known(std::optional<double> value) { return value ? json(*value) : json(); }

int number_in(const std::string& label) {
  int number = 0;
  const std::size_t bracket = label.find('[');
  if (bracket != std::string::npos) std::from_chars(label.data() + bracket + 1, label.data() + label.size(), number);
  return number;
}

json run_json(const RunRecord& run) {
  return {{"id", run.id},         {"label", run.label},     {"began", run.began},    {"machine", run.machine},
          {"target", run.target}, {"driver", run.driver},   {"clocks", run.clocks},  {"ranks", run.ranks},
          {"commit", run.commit}, {"version", run.version}, {"command", run.command}};
}

std::string refusal_of(const CaseRecord& record, double median_us) {
  if (!record.verified) return "wrong: " + harness::one_line(record.detail);
  if (!(median_us > 0)) return "it has no time";
  if (median_us < record.floor_us) return fmt::format("below the floor: {}", record.floor_bound_by);
  return {};
}

/// What tells the case from others of its operator in the group, or from the operator's defaults.
std::string shape_of(const CaseRecord& record, const Group& group) {
  const harness::OperatorInfo* const op = harness::find_operator(record.op);
  const json params = json::parse(record.params, nullptr, false);
  if (op == nullptr || !params.is_object()) return {};
  std::string shape;
  for (const harness::ParamInfo& info : op->params) {
    const json value = params.value(info.name, json());
    if (!value.is_string()) continue;
    const bool varies = std::any_of(group.begin(), group.end(), [&](const auto& entry) {
      const json others = json::parse(entry.second.params, nullptr, false);
      return entry.second.op == record.op && others.is_object() && others.value(info.name, json()) != value;
    });
    if (varies || value != info.default_value)
      harness::append_to_list(shape, " ", fmt::format("{}={}", info.name, value.get<std::string>()));
  }
  return shape;
}

json series_json(const SeriesRecord& series, bool main) {
  const Quartiles quartiles = quartiles_of(series.us);
  return {{"name", series.name},
          {"ours", series.ours},
          {"main", main},
          {"median_us", known(quartiles.median)},
          {"q1_us", known(quartiles.q1)},
          {"q3_us", known(quartiles.q3)},
          {"samples", quartiles.n},
          {"graph_us", known(series.graph_us)},
          {"back_to_back_us", known(series.back_to_back_us)}};
}

Result<json> case_json(Store& store, CaseRecord& record, const Group& group) {
  json series = json::array();
  double ours_us = 0, baseline_us = 0;
  std::string baseline;
  bool first = true;
  for (SeriesRecord& one : record.series) {
    if (Status status = store.read_samples(one); !status.ok()) return status;
    const double median = quartiles_of(one.us).median;
    const bool main = one.ours && std::exchange(first, first && !one.ours);
    if (main) ours_us = median;
    if (!one.ours && !one.entry.empty() && median > 0 && (baseline.empty() || median < baseline_us)) {
      baseline = one.name;
      baseline_us = median;
    }
    series.push_back(series_json(one, main));
  }
  const std::string refused = refusal_of(record, ours_us);
  const bool both = ours_us > 0 && baseline_us > 0;
  const json params = json::parse(record.params, nullptr, false);
  return json{{"op", record.op},
              {"label", record.label},
              {"shape", shape_of(record, group)},
              {"params", params.is_object() ? params : json::object()},
              {"scaled", record.scaled},
              {"seed", record.seed},
              {"run", record.run},
              {"refused", refused.empty() ? json() : json(refused)},
              {"floor_us", known(record.floor_us)},
              {"floor_bound_by", record.floor_bound_by},
              {"speed_of_light_us", known(record.speed_of_light_us)},
              {"ours_us", known(ours_us)},
              {"times_floor", ours_us > 0 && record.floor_us > 0 ? json(ours_us / record.floor_us) : json()},
              {"baseline", baseline},
              {"baseline_us", known(baseline_us)},
              {"speedup", both ? json(baseline_us / ours_us) : json()},
              {"plan", record.plan},
              {"no_baseline", record.no_baseline},
              {"series", series}};
}

/// Geometric means of those cases that count, each over those that have the figure.
json mean_of(const json& cases) {
  json mean = json::object();
  for (const char* key : {"ours_us", "times_floor", "speedup"}) {
    std::vector<double> values;
    for (const json& one : cases) {
      if (one["refused"].is_null() && one[key].is_number()) values.push_back(one[key].get<double>());
    }
    mean[key] = known(geometric_mean(values));
    mean[std::string(key) + "_cases"] = values.size();
  }
  return mean;
}

json tax_json(const TaxRecord& tax, int ranks) {
  const json detail = json::parse(tax.detail, nullptr, false);
  return {{"run", tax.run},
          {"suite", tax.suite},
          {"case", tax.of_case},
          {"ranks", ranks},
          {"baseline", tax.baseline},
          {"baseline_us", tax.baseline_us},
          {"launch_us", known(tax.launch_us)},
          {"bulk_us", known(tax.bulk_us)},
          {"locality_us", known(tax.locality_us)},
          {"rest_us", known(tax.rest_us)},
          {"fused_us", known(tax.fused_us)},
          {"detail", detail.is_object() ? detail : json::object()}};
}

/// Takes what newer runs do not have. `present`: gets the names of suites.
Status take(Store& store, const RunRecord& run, const ReportSelection& selection, Chosen& chosen,
            std::set<std::string>& present) {
  const auto wanted = [&](const std::string& suite) {
    if (!suite.empty()) present.insert(suite);
    return selection.suites.empty() ||
           std::find(selection.suites.begin(), selection.suites.end(), suite) != selection.suites.end();
  };
  auto cases = store.cases_of_run(run.id);
  if (!cases.ok()) return cases.status();
  for (CaseRecord& record : *cases) {
    if (!wanted(record.suite)) continue;
    Group& group = chosen.groups[{record.suite.empty(), record.suite, run.ranks, record.settings}];
    const CaseKey key = {record.op, number_in(record.label), record.label, record.label.empty() ? record.params : ""};
    if (group.try_emplace(key, std::move(record)).second) chosen.runs[run.id] = run;
  }
  auto taxes = store.taxes_of_run(run.id);
  if (!taxes.ok()) return taxes.status();
  for (TaxRecord& tax : *taxes) {
    if (!wanted(tax.suite)) continue;
    if (chosen.taxes.try_emplace({tax.suite, tax.of_case, run.ranks, tax.baseline}, tax).second)
      chosen.runs[run.id] = run;
  }
  return {};
}

std::string names_of(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) harness::append_to_list(text, ", ", name);
  return text.empty() ? "none" : text;
}

/// The complete runs of the machine, the newest first.
Result<std::vector<RunRecord>> choose_runs(Store& store, const std::string& machine) {
  auto all = store.runs();
  if (!all.ok()) return all.status();
  std::set<std::string> machines;
  std::erase_if(*all, [](const RunRecord& run) { return !run.complete; });
  for (const RunRecord& run : *all) machines.insert(run.machine);
  if (all->empty())
    return invalid_argument("the database has no complete run; `farwarp bench` that ends by itself is one");
  const std::string chosen = machine.empty() ? all->back().machine : machine;
  if (!machines.contains(chosen))
    return invalid_argument(fmt::format("--machine is '{}': allowed are {}", chosen, names_of(machines)));
  std::erase_if(*all, [&](const RunRecord& run) { return run.machine != chosen; });
  std::reverse(all->begin(), all->end());
  return all;
}

}  // namespace

Result<json> make_report(Store& store, const ReportSelection& selection) {
  const auto runs = choose_runs(store, selection.machine);
  if (!runs.ok()) return runs.status();
  Chosen chosen;
  std::set<std::string> present;
  for (const RunRecord& run : *runs) {
    if (Status status = take(store, run, selection, chosen, present); !status.ok()) return status;
  }
  for (const std::string& suite : selection.suites) {
    if (!present.contains(suite))
      return invalid_argument(fmt::format("--suite is '{}': allowed are those of which {} has complete runs: {}", suite,
                                          runs->front().machine, names_of(present)));
  }
  json suites = json::array(), taxes = json::array(), used = json::array();
  for (auto& [key, group] : chosen.groups) {
    json cases = json::array();
    for (auto& [case_key, record] : group) {
      auto one = case_json(store, record, group);
      if (!one.ok()) return one.status();
      cases.push_back(std::move(*one));
    }
    suites.push_back({{"suite", std::get<1>(key)},
                      {"ranks", std::get<2>(key)},
                      {"settings", std::get<3>(key)},
                      {"mean", mean_of(cases)},
                      {"cases", std::move(cases)}});
  }
  for (const auto& [key, tax] : chosen.taxes) taxes.push_back(tax_json(tax, std::get<2>(key)));
  for (const auto& [id, run] : chosen.runs) used.push_back(run_json(run));
  const json report = {{"report_version", kReportVersion},
                       {"machine", runs->front().machine},
                       {"times_have_meaning", !runs->front().emulated()},
                       {"runs", used},
                       {"suites", suites},
                       {"taxes", taxes}};
  // Kept texts may be no UTF-8: what is not becomes the replacement character.
  return json::parse(to_text(report));
}

Result<json> parse_report(const std::string& text) {
  json report = json::parse(text, nullptr, false);
  const json version = report.is_object() ? report.value("report_version", json()) : json();
  if (!version.is_number_integer()) return invalid_argument("is no JSON that `farwarp report --json` wrote");
  if (version != kReportVersion)
    return invalid_argument(fmt::format("report_version is {}; allowed: {}", version.dump(), kReportVersion));
  return report;
}

std::string to_text(const json& report) { return report.dump(1, ' ', false, json::error_handler_t::replace) + "\n"; }

}  // namespace farwarp::results
