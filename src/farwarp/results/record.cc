#include "farwarp/results/record.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "farwarp/harness/params.h"
#include "farwarp/harness/taxes_report.h"

namespace farwarp::results {

std::string own_entry(const std::string& commit) { return "farwarp " + commit; }

CaseRecord record_of(const harness::CaseResult& result, const Origin& origin, const std::string& entry) {
  const harness::CaseRequest& request = result.request;
  const harness::BenchOutcome& bench = result.bench;
  nlohmann::json params = nlohmann::json::object();
  for (const harness::ParamInfo& info : request.op->params) {
    const auto found = request.params.find(info.name);
    params[info.name] = found == request.params.end() ? info.default_value : found->second;
  }
  CaseRecord record;
  record.op = request.op->name;
  record.suite = origin.suite;
  record.label = request.label;
  record.settings = origin.settings;
  record.params = params.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  record.scaled = request.scaled;
  record.seed = request.options.seed;
  record.floor_us = bench.floor.us;
  record.floor_bound_by = bench.floor.bound_by;
  record.speed_of_light_us = request.speed_of_light_us.value_or(0);
  record.verified = result.outcome.pass;
  if (!record.verified)
    record.detail = result.outcome.detail.empty() ? result.outcome.status.to_string() : result.outcome.detail;
  record.plan = bench.plan;
  record.no_baseline = bench.no_baseline;
  bool first = true;
  for (const harness::Measurement& measured : bench.measurements) {
    SeriesRecord series;
    series.name = measured.name;
    series.ours = measured.ours;
    if (!measured.ours && !measured.part) series.entry = measured.name;
    if (measured.ours && std::exchange(first, false)) series.entry = entry;
    series.graph_us = measured.graph_us;
    series.back_to_back_us = measured.back_to_back_us;
    series.us = measured.time_us.samples;
    for (std::size_t i = 0; i < measured.time_us.mhz.size(); ++i)
      series.cycles.push_back(series.us[i] * measured.time_us.mhz[i]);
    record.series.push_back(std::move(series));
  }
  // So that a leaderboard shows the failure, and not an older run.
  if (first) record.series.push_back({.name = record.op, .entry = entry});
  return record;
}

TaxRecord tax_record_of(const harness::CaseResult& result, const Origin& origin) {
  const harness::CaseRequest& request = result.request;
  const harness::Taxes& taxes = *result.bench.taxes;
  TaxRecord record;
  record.suite = origin.suite;
  record.of_case = request.op->name;
  harness::append_to_list(
      record.of_case, " ",
      request.label.empty() ? harness::to_string(request.params, request.op->params) : request.label);
  record.baseline = taxes.baseline_name;
  record.baseline_us = taxes.baseline_us;
  record.launch_us = taxes.launch_us;
  record.bulk_us = taxes.bulk_us();
  record.locality_us = taxes.locality_us;
  record.rest_us = taxes.rest_us;
  record.fused_us = taxes.fused_us;
  nlohmann::json detail = harness::to_json(taxes);
  if (!origin.settings.empty()) detail["settings"] = origin.settings;
  if (!result.outcome.pass) detail["failed"] = result.outcome.detail;
  record.detail = detail.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return record;
}

}  // namespace farwarp::results
