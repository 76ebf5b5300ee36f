#include "farwarp/harness/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "farwarp/harness/params.h"
#include "farwarp/harness/taxes_report.h"

namespace farwarp::harness {
namespace {

using nlohmann::json;

constexpr const char* kRow = "{:<6} {:<10} {:>5} {:>9} {:>8} {:>7} {:>9} {:>9} {:>8}  {}\n";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";

std::string schedules_of(const CaseResult& result) {
  if (result.schedule_hashes.empty()) return "-";
  return fmt::format("{}/{}", result.distinct_schedule_hashes, result.schedule_hashes.size());
}

std::string microseconds(double us) { return us > 0 ? fmt::format("{:.1f}", us) : "-"; }

json timing_json(const Timing& timing) {
  return {{"median", timing.median}, {"p10", timing.p10}, {"p90", timing.p90}, {"min", timing.min}, {"n", timing.n}};
}

void add_bench(const BenchOutcome& bench, json& entry) {
  json baselines = json::object(), parts = json::object();
  for (const Measurement& measurement : bench.measurements) {
    json values = {{"time_us", timing_json(measurement.time_us)}};
    if (measurement.back_to_back_us > 0) values["back_to_back_us"] = measurement.back_to_back_us;
    if (measurement.graph_us > 0) values["graph_us"] = measurement.graph_us;
    if (&measurement == bench.measurements.data()) entry.update(values);
    (measurement.ours ? parts : baselines)[measurement.name] = values;
  }
  entry["measurements"] = parts;
  entry["baselines"] = baselines;
  entry["no_baseline"] = bench.no_baseline;
  entry["floor_us"] = bench.floor.us > 0 ? json(bench.floor.us) : json();
  entry["floor_bound_by"] = bench.floor.bound_by;
  json models = json::object();
  for (const ModelFloor& model : bench.models)
    models[model.machine] = {{"floor_us", model.floor.us}, {"floor_bound_by", model.floor.bound_by}};
  entry["model_floors"] = models;
  entry["plan"] = bench.plan;
  if (bench.taxes) entry["taxes"] = to_json(*bench.taxes);
}

// JSON has no infinity: an error that is not finite is written as the largest double.
double finite(double value) { return std::isfinite(value) ? value : std::numeric_limits<double>::max(); }

json case_json(const CaseResult& result) {
  const CaseRequest& request = result.request;
  const CheckOutcome& outcome = result.outcome;
  json params = json::object();
  for (const ParamInfo& info : request.op->params) {
    const auto found = request.params.find(info.name);
    params[info.name] = found == request.params.end() ? info.default_value : found->second;
  }
  json hashes = json::array();
  for (const std::uint64_t hash : result.schedule_hashes) hashes.push_back(fmt::format("{:016x}", hash));
  json entry = {
      {"op", request.op->name},
      {"label", request.label},
      {"target", name_of(request.options.target)},
      {"ranks", request.options.ranks},
      {"params", params},
      {"scaled", request.scaled},
      {"seed", request.options.seed},
      {"calls", request.options.calls},
      {"pass", outcome.pass},
      {"status", to_string(outcome.status.code())},
      {"detail", outcome.detail},
      {"rel_err", finite(outcome.rel_err)},
      {"max_share", finite(outcome.max_share)},
      {"tile_share", finite(outcome.tile_share)},
      {"schedules", result.schedule_hashes.size()},
      {"schedule_hash", hashes.empty() ? json() : hashes[0]},
      {"schedule_hashes", hashes},
      {"distinct_schedule_hashes", result.distinct_schedule_hashes},
      {"thread_steps_per_s", result.thread_steps_per_s},
      {"seconds", result.seconds},
  };
  if (!request.about.empty()) entry["about"] = request.about;
  if (!request.source.empty()) entry["source"] = request.source;
  if (request.suite_ranks != 0) {
    entry["suite_ranks"] = request.suite_ranks;
    entry["problem"] = name_of(request.problem);
  }
  if (request.speed_of_light_us) entry["speed_of_light_us"] = *request.speed_of_light_us;
  if (request.bench) add_bench(result.bench, entry);
  return entry;
}

}  // namespace

std::string indented(const std::string& text) {
  std::string result = "       ";
  for (const char c : text) result += c == '\n' ? std::string("\n       ") : std::string(1, c);
  return result;
}

std::string title_of(const CaseRequest& request) {
  std::string title = request.op->name;
  const std::string params = to_string(request.params, request.op->params);
  std::string about = request.about.empty() ? "" : fmt::format("({})", request.about), problem;
  if (request.op->spread && request.suite_ranks != 0 && request.suite_ranks != request.options.ranks)
    problem = fmt::format("{} of {} ranks:", name_of(request.problem), request.suite_ranks);
  for (const std::string& part :
       {request.label, about, problem, std::string(request.scaled ? "scaled down to" : ""), params}) {
    if (!part.empty()) append_to_list(title, " ", part);
  }
  return title;
}

std::string marked(bool pass, bool colour) {
  const std::string word = fmt::format("{:<6}", pass ? "pass" : "FAIL");
  return colour ? fmt::format("{}{}{}", pass ? kGreen : kRed, word, kPlain) : word;
}

std::string table_header() {
  return fmt::format(kRow, "result", "target", "ranks", "rel err", "element", "tile", "schedules", "Msteps/s",
                     "seconds", "case");
}

std::string table_row(const CaseResult& result, bool colour) {
  const CheckOutcome& outcome = result.outcome;
  const std::string mark = marked(outcome.pass, colour);
  const std::string steps =
      result.thread_steps_per_s > 0 ? fmt::format("{:.2f}", result.thread_steps_per_s * 1e-6) : "-";
  std::string row = fmt::format(kRow, mark, name_of(result.request.options.target), result.request.options.ranks,
                                fmt::format("{:.2e}", outcome.rel_err), fmt::format("{:.3f}", outcome.max_share),
                                fmt::format("{:.3f}", outcome.tile_share), schedules_of(result), steps,
                                fmt::format("{:.2f}", result.seconds), title_of(result.request));
  if (!outcome.pass) row += indented(outcome.detail.empty() ? outcome.status.to_string() : outcome.detail) + "\n";
  return row;
}

constexpr const char* kBenchRow = "{:<6} {:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n";

std::string bench_header() {
  return fmt::format(kBenchRow, "result", "us", "median", "p10", "p90", "graph", "train", "x floor", "case");
}

std::string bench_rows(const CaseResult& result, bool colour) {
  const BenchOutcome& bench = result.bench;
  std::string mark = marked(result.outcome.pass, colour), title = title_of(result.request), rows;
  for (const Measurement& measurement : bench.measurements) {
    const Timing& time = measurement.time_us;
    const std::string gap = bench.floor.us > 0 ? fmt::format("{:.2f}", time.median / bench.floor.us) : "-";
    rows += fmt::format(kBenchRow, mark, measurement.name, microseconds(time.median), microseconds(time.p10),
                        microseconds(time.p90), microseconds(measurement.graph_us),
                        microseconds(measurement.back_to_back_us), gap, title);
    mark = title = "";
  }
  if (rows.empty()) rows = fmt::format("{} {}\n", mark, title);
  if (bench.floor.us > 0)
    rows += indented(fmt::format("floor {:.1f} us: {}", bench.floor.us, bench.floor.bound_by)) + "\n";
  std::string models;
  for (const ModelFloor& model : bench.models)
    append_to_list(models, ", ", fmt::format("{} {:.1f}", model.machine, model.floor.us));
  if (!models.empty()) rows += indented("floors by data sheets (a model, without latencies), us: " + models) + "\n";
  if (result.request.speed_of_light_us)
    rows += indented(fmt::format("speed of light by the suite, of {} ranks: {:.2f} us", result.request.suite_ranks,
                                 *result.request.speed_of_light_us)) +
            "\n";
  if (!bench.no_baseline.empty()) rows += indented("no baseline: " + bench.no_baseline) + "\n";
  if (!bench.plan.empty()) rows += indented(bench.plan) + "\n";
  const CheckOutcome& outcome = result.outcome;
  if (!outcome.pass) rows += indented(outcome.detail.empty() ? outcome.status.to_string() : outcome.detail) + "\n";
  return rows;
}

std::string summary(std::span<const CaseResult> results, const SkippedByOp& skipped) {
  const auto passed =
      std::count_if(results.begin(), results.end(), [](const CaseResult& result) { return result.outcome.pass; });
  std::string text = fmt::format("{} passed, {} failed", passed, static_cast<std::ptrdiff_t>(results.size()) - passed);
  if (skipped.empty()) return text + "\n";
  int total = 0;
  std::string reasons;
  for (const auto& [op, skip] : skipped) {
    total += skip.cases;
    append_to_list(reasons, "; ", fmt::format("{} {}: {}", one_line(op), skip.cases, skip.reason));
  }
  return text + fmt::format(", {} skipped ({})\n", total, reasons);
}

std::string to_json(std::span<const CaseResult> results, const SkippedByOp& skipped,
                    const std::map<std::string, std::string>& build, bool complete) {
  json cases = json::array();
  for (const CaseResult& result : results) cases.push_back(case_json(result));
  json skips = json::array();
  for (const auto& [op, skip] : skipped) skips.push_back({{"op", op}, {"cases", skip.cases}, {"reason", skip.reason}});
  const json root = {{"schema_version", kSchemaVersion},
                     {"farwarp", build},
                     {"complete", complete},
                     {"cases", cases},
                     {"skipped", skips}};
  return root.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace farwarp::harness
