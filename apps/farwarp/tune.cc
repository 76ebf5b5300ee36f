// farwarp tune: measures which path and which width of tiles is the fastest for a shape on this machine, and keeps it
// in the table of plans.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>

#include "commands.h"
#include "farwarp/harness/params.h"
#include "farwarp/machine/kept_file.h"
#include "farwarp/ops/parallel_gemm/dispatch/plan_table.h"
#include "farwarp/runtime/device.h"
#include "job.h"
#include "print.h"

namespace farwarp::cli {
namespace {

using harness::CaseRequest;
using harness::CaseResult;
using parallel_gemm::Kind;
using parallel_gemm::Path;
using parallel_gemm::PlanEntry;
using parallel_gemm::PlanTable;

constexpr int kWidths[] = {16, 32, 64, 128, 192, 256};  // the widths of all kernels
constexpr double kNoise = 0.02;                         // a width has to be faster by more than this to be taken
constexpr const char* kShapeParams[] = {"m", "n", "k", "has_bias", "dtype"};

const Kind* kind_of(const CaseRequest& request) {
  for (const Kind& kind : parallel_gemm::kKinds) {
    if (request.op->name == name_of(kind)) return &kind;
  }
  return nullptr;
}

/// Keeps the cases of operators that have more than one path; removes the others.
Status keep_what_has_paths(Job& job) {
  std::erase_if(job.cases, [](const CaseRequest& request) { return kind_of(request) == nullptr; });
  if (job.cases.empty())
    return invalid_argument("no case is selected that has paths: allowed are ag-gemm, gemm-rs, gemm-ar");
  for (const CaseRequest& request : job.cases) {
    if (request.options.ranks != job.cases[0].options.ranks)
      return invalid_argument("the suite's cases are of several numbers of ranks: name one with --ranks");
    for (const auto& [key, value] : request.params) {
      if (std::find(std::begin(kShapeParams), std::end(kShapeParams), key) != std::end(kShapeParams)) continue;
      return invalid_argument(
          fmt::format("parameter {} is '{}': allowed in tune are m, n, k, has_bias, dtype", key, value));
    }
  }
  return {};
}

/// The existing table. Its entries stay, except for shapes that are measured again.
Result<PlanTable> table_to_fill(const std::string& out, const std::string& device, int ranks) {
  std::error_code error;
  if (out.empty()) return parallel_gemm::plans_of(device, ranks);
  if (!std::filesystem::exists(out, error)) return PlanTable{device, ranks, {}};
  const auto text = read_text(out);
  auto table = text.ok() ? parallel_gemm::parse_plans(*text) : Result<PlanTable>(text.status());
  if (!table.ok()) return invalid_argument(fmt::format("--out is '{}': {}", out, table.status().message()));
  if (table->device != device || table->ranks != ranks)
    return invalid_argument(fmt::format("--out is '{}': it is of {} x {}, and this is {} x {}", out, table->ranks,
                                        table->device, ranks, device));
  return table;
}

CaseResult run_with(CaseRequest request, const std::shared_ptr<Bootstrap>& group, int tile_columns) {
  request.params["tile_columns"] = std::to_string(tile_columns);
  request.bench->baselines = tile_columns == 0;
  return harness::run_case(request, group, [](int) {});
}

Status failure_of(const CaseResult& result) {
  const Status& status = result.outcome.status;
  return {status.ok() ? StatusCode::kInternal : status.code(), result.outcome.detail};
}

/// Times our plan's own choice and the unfused path, then the other widths.
Result<PlanEntry> measure(const CaseRequest& request, const std::shared_ptr<Bootstrap>& group) {
  static constexpr harness::Choice<DType> kDtypes[] = {{"bf16", DType::kBf16}, {"fp16", DType::kF16}};
  harness::ParamReader reader(request.params, request.op->params);
  PlanEntry entry;
  entry.kind = *kind_of(request);
  entry.m = reader.small_integer("m", 1, parallel_gemm::kMaxSize);
  entry.n = reader.small_integer("n", 1, parallel_gemm::kMaxSize);
  entry.k = reader.small_integer("k", 1, parallel_gemm::kMaxSize);
  entry.dtype = reader.choice("dtype", kDtypes);
  entry.measured = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::now()));
  const CaseResult first = run_with(request, group, 0);
  if (!first.outcome.pass) return failure_of(first);
  entry.own_us = first.bench.measurements.front().time_us.median;
  for (const harness::Measurement& measurement : first.bench.measurements) {
    if (measurement.ours) continue;
    entry.unfused_us = measurement.time_us.median;  // the first baseline: both libraries in one graph
    entry.algorithm = measurement.algorithm;
    break;
  }
  if (entry.unfused_us == 0) return unavailable("there is nothing to compare with: " + first.bench.no_baseline);
  for (const int columns : kWidths) {
    const CaseResult result = run_with(request, group, columns);
    if (result.outcome.status.code() == StatusCode::kInvalidArgument) continue;  // no such kernel for this shape
    if (!result.outcome.pass) return failure_of(result);
    const double us = result.bench.measurements.front().time_us.median;
    if (us >= entry.own_us * (1 - kNoise)) continue;
    entry.own_us = us;
    entry.tile_columns = columns;
  }
  entry.path = entry.unfused_us < entry.own_us ? Path::kUnfused : Path::kOwn;
  return entry;
}

std::string line_of(const PlanEntry& entry) {
  const std::string width = entry.tile_columns == 0 ? "" : fmt::format(" ({} columns)", entry.tile_columns);
  return fmt::format("{} {} x {} x {} {}: own {:.1f} us{}, unfused {:.1f} us: {}\n", name_of(entry.kind), entry.m,
                     entry.n, entry.k, name_of(entry.dtype), entry.own_us, width, entry.unfused_us,
                     name_of(entry.path));
}

}  // namespace

int tune_command(const CheckOptions& options) {
  CheckOptions selected = options;
  if (options.which == "all" && !options.suite.empty()) selected.which = "benchmarks";
  auto job = make_job(selected, "tune");
  if (!job.ok()) return fail(job.status());
  if (const Status status = keep_what_has_paths(*job); !status.ok()) return fail(status);
  const harness::RunOptions& run = job->cases.front().options;
  if (is_emulated(run.target))
    return fail(unavailable(fmt::format("tune needs real devices: {} is emulated", name_of(run.target))));
  const auto device = Device::open(run.target, job->group == nullptr ? 0 : job->group->rank());
  if (!device.ok()) return fail(device.status());
  auto table = table_to_fill(options.out, (*device)->model(), run.ranks);
  if (!table.ok()) return fail(table.status());
  const auto path = options.out.empty() ? parallel_gemm::plans_file(table->device, table->ranks)
                                        : Result<std::filesystem::path>(std::filesystem::path(options.out));
  if (!path.ok()) return fail(path.status());
  const bool first = job->group == nullptr || job->group->rank() == 0;
  if (first && !job->why_target.empty()) print_text(stderr, "{}\n", job->why_target);
  for (const CaseRequest& request : job->cases) {
    const auto entry = measure(request, job->group);
    if (!entry.ok()) return fail(entry.status());
    put(*table, *entry);
    if (!first) continue;
    print_text("{}", line_of(*entry));
    std::fflush(stdout);
    // After each shape: an interrupted run keeps what it has measured.
    if (const Status saved = replace_text(*path, to_json(*table)); !saved.ok()) return fail(saved);
  }
  if (first) print_text("kept in {}\n", path->string());
  return 0;
}

}  // namespace farwarp::cli
