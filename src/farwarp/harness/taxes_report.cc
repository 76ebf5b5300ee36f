#include "farwarp/harness/taxes_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "farwarp/harness/report.h"

namespace farwarp::harness {
namespace {

constexpr const char* kRow = "{:<6} {:>9} {:>7} {:>8} {:>7} {:>7} {:>7} {:>8} {:>7} {:>8}  {}\n";

std::string us(double value) { return fmt::format("{:.1f}", value); }

std::string stage_line(const StageTimes& stage) {
  std::string line = fmt::format("  {}: {:.1f} us", stage.name, stage.us);
  if (stage.warm_us != stage.us) line += fmt::format(", {:.1f} with its input in the L2", stage.warm_us);
  if (stage.flushed_us != stage.us) line += fmt::format(", {:.1f} with the L2 flushed", stage.flushed_us);
  if (stage.exchange && stage.skew_us > 0)
    line += fmt::format("; ranks arrive within {:.1f} us, which costs {:.1f}", stage.skew_us, stage.waiting_us);
  return line;
}

}  // namespace

std::string taxes_header() {
  return fmt::format(kRow, "result", "baseline", "start", "work", "launch", "ranks", "order", "locality", "rest",
                     "fused", "case (us)");
}

std::string taxes_rows(const CaseResult& result, bool colour) {
  std::string mark = marked(result.outcome.pass, colour), rows;
  if (result.bench.taxes) {
    const Taxes& taxes = *result.bench.taxes;
    rows = fmt::format(kRow, mark, us(taxes.baseline_us), us(taxes.start_us), us(taxes.work_us), us(taxes.launch_us),
                       us(taxes.ranks_us), taxes.no_order.empty() ? us(taxes.order_us) : "-", us(taxes.locality_us),
                       us(taxes.rest_us), us(taxes.fused_us), title_of(result.request));
    rows +=
        indented(fmt::format("{}: {} launches of {:.2f} us; launched one by one {:.1f} us; the operator: {} launch{}",
                             taxes.baseline_name, taxes.launches, taxes.us_per_launch, taxes.eager_us,
                             taxes.fused_launches, taxes.fused_launches == 1 ? "" : "es")) +
        "\n";
    for (const StageTimes& stage : taxes.stages) rows += indented(stage_line(stage)) + "\n";
    if (!taxes.no_order.empty()) rows += indented("order not measured: " + taxes.no_order) + "\n";
  } else {
    rows = fmt::format("{} {}\n", mark, title_of(result.request));
    if (!result.bench.no_baseline.empty()) rows += indented("no taxes: " + result.bench.no_baseline) + "\n";
  }
  const CheckOutcome& outcome = result.outcome;
  if (!outcome.pass) rows += indented(outcome.detail.empty() ? outcome.status.to_string() : outcome.detail) + "\n";
  return rows;
}

nlohmann::json to_json(const Taxes& taxes) {
  nlohmann::json stages = nlohmann::json::array();
  for (const StageTimes& stage : taxes.stages)
    stages.push_back({{"name", stage.name},
                      {"exchange", stage.exchange},
                      {"launches", stage.launches},
                      {"us", stage.us},
                      {"warm_us", stage.warm_us},
                      {"flushed_us", stage.flushed_us},
                      {"skew_us", stage.skew_us},
                      {"waiting_us", stage.waiting_us}});
  return {{"baseline", taxes.baseline_name},
          {"baseline_us", taxes.baseline_us},
          {"eager_us", taxes.eager_us},
          {"start_us", taxes.start_us},
          {"work_us", taxes.work_us},
          {"launch_us", taxes.launch_us},
          {"ranks_us", taxes.ranks_us},
          {"order_us", taxes.no_order.empty() ? nlohmann::json(taxes.order_us) : nlohmann::json()},
          {"no_order", taxes.no_order},
          {"locality_us", taxes.locality_us},
          {"rest_us", taxes.rest_us},
          {"us_per_launch", taxes.us_per_launch},
          {"launches", taxes.launches},
          {"fused_us", taxes.fused_us},
          {"fused_launches", taxes.fused_launches},
          {"stages", stages}};
}

}  // namespace farwarp::harness
