#include "job.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <optional>

#include "farwarp/harness/params.h"
#include "farwarp/harness/suite.h"
#include "farwarp/world/view.h"
#include "group.h"
#include "target.h"

namespace farwarp::cli {
namespace {

using harness::CaseRequest;
using harness::OperatorInfo;
using harness::Params;

constexpr std::int64_t kMaxSchedules = 1'000'000;
constexpr std::int64_t kMaxCalls = 1'000'000;
constexpr int kDefaultRanks = 8;
constexpr std::int64_t kDefaultSeed = 1;
constexpr std::int64_t kDefaultCalls = 2;  // operators alternate between two sets of buffers
constexpr std::int64_t kDefaultDeadlineMs = 10'000;
constexpr std::int64_t kDefaultSamples = 40;
constexpr std::int64_t kMaxSamples = 1000;

Status read_integer(std::string_view option, const std::string& text, std::int64_t low, std::int64_t high,
                    std::int64_t& value) {
  if (text.empty()) return {};
  const auto parsed = harness::parse_integer(option, text, low, high);
  if (parsed.ok()) value = *parsed;
  return parsed.status();
}

bool is_file_name(const std::string& name) { return name.find('/') != std::string::npos || name.ends_with(".json"); }

std::string registered_names() {
  std::string names;
  for (const OperatorInfo& op : harness::registered_ops()) harness::append_to_list(names, ", ", op.name);
  return names.empty() ? "none" : names;
}

// The operator's, or the suite's. Cases of operators that are not in this build are counted as skipped.
Status select_cases(const CheckOptions& options, const Params& settings, std::string_view timed, Job& job,
                    std::optional<int>& suite_ranks) {
  const bool what_is_file = is_file_name(options.what);
  if (what_is_file && !options.suite.empty()) return invalid_argument("give a suite file or --suite, not both");
  const std::string suite_name = what_is_file ? options.what : options.suite;
  const std::string op_name = what_is_file ? "" : options.what;
  if (suite_name.empty() && op_name.empty()) return invalid_argument("give an operator, --suite NAME or a suite file");
  if (!op_name.empty() && harness::find_operator(op_name) == nullptr) {
    return invalid_argument(fmt::format("operator is '{}': allowed is {}", op_name, registered_names()));
  }
  if (suite_name.empty()) {
    const OperatorInfo& op = *harness::find_operator(op_name);
    const bool plain = timed.empty() && options.fault.empty();
    job.cases = harness::plain_requests(op, settings);
    if (!plain) {
      job.cases.resize(1);
      job.cases[0].params = settings;
    }
    for (CaseRequest& request : job.cases) request.options.seed = kDefaultSeed;
    return {};
  }
  const auto suite = harness::load_suite(suite_name);
  if (!suite.ok()) return suite.status();
  const char* const folder = std::getenv("FARWARP_SUITES");
  job.files.push_back(is_file_name(suite_name) ? suite_name
                                               : fmt::format("{}/{}.json", folder ? folder : "", suite_name));
  suite_ranks = suite->ranks;
  for (const harness::SuiteEntry& entry : suite->entries) {
    if (!op_name.empty() && entry.op != op_name) continue;
    if (options.which != "all" && options.which != name_of(entry.group)) continue;
    CaseRequest request;
    request.op = harness::find_operator(entry.op);
    if (request.op == nullptr) {
      auto& skipped = job.skipped[entry.op];
      ++skipped.cases;
      skipped.reason = "not in this build";
      continue;
    }
    request.label = fmt::format("{}[{}]", name_of(entry.group), entry.index);
    request.params = entry.params;
    for (const auto& [key, value] : settings) request.params[key] = value;
    request.options.seed = entry.seed;
    request.speed_of_light_us = entry.speed_of_light_us;
    job.cases.push_back(std::move(request));
  }
  if (job.cases.empty()) return invalid_argument(fmt::format("no case of suite {} is selected", suite->name));
  return {};
}

// Checks the parameters of all cases before anything runs.
Status check_params(const Job& job) {
  for (const CaseRequest& request : job.cases) {
    const auto made = request.op->make(request.params);
    if (!made.ok()) return made.status();
  }
  return {};
}

// Times on the emulator say nothing about any machine: a command that times takes the emulator only if it is named. A
// trace shows there the order of things.
Result<ChosenTarget> choose(const CheckOptions& options, int ranks, std::string_view timed) {
  auto target = choose_target(options.target, ranks);
  if (!timed.empty() && timed != "trace" && target.ok() && options.target == "auto" && is_emulated(target->target)) {
    return unavailable(fmt::format("{} needs real devices: {}", timed, target->why));
  }
  return target;
}

}  // namespace

Result<Job> make_job(const CheckOptions& options, std::string_view timed) {
  Job job;
  Params settings;
  for (const std::string& text : options.settings) {
    if (Status status = harness::add_settings(text, settings); !status.ok()) return status;
  }
  if (options.which != "all" && options.which != "tests" && options.which != "benchmarks") {
    return invalid_argument(fmt::format("--which is '{}': allowed is tests|benchmarks|all", options.which));
  }
  std::int64_t ranks = 0, seed = -1, schedules = 0, calls = kDefaultCalls, deadline_ms = kDefaultDeadlineMs,
               samples = kDefaultSamples;
  Status status = read_integer("--ranks", options.ranks, 1, kMaxRanks, ranks);
  if (status.ok()) status = read_integer("--seed", options.seed, 0, std::numeric_limits<std::int64_t>::max(), seed);
  if (status.ok()) status = read_integer("--schedules", options.schedules, 1, kMaxSchedules, schedules);
  if (status.ok()) status = read_integer("--calls", options.calls, 1, kMaxCalls, calls);
  if (status.ok()) status = read_integer("--deadline-ms", options.deadline_ms, 1, kLongestDeadlineMs, deadline_ms);
  if (status.ok()) status = read_integer("--samples", options.samples, 1, kMaxSamples, samples);
  std::optional<int> suite_ranks;
  if (status.ok()) status = select_cases(options, settings, timed, job, suite_ranks);
  if (status.ok()) status = check_params(job);
  if (!status.ok()) return status;
  auto group = join_group(ranks, std::chrono::milliseconds(deadline_ms));
  if (!group.ok()) return group.status();
  job.group = std::move(*group);
  if (ranks == 0) ranks = suite_ranks.value_or(kDefaultRanks);
  Result<harness::Fault> fault = harness::Fault{};
  if (!options.fault.empty()) fault = harness::parse_fault(options.fault, static_cast<int>(ranks));
  if (!fault.ok()) return fault.status();
  for (const CaseRequest& request : job.cases) {
    if (Status injected = harness::check_fault(*request.op, *fault); !injected.ok()) return injected;
  }
  const auto target = choose(options, static_cast<int>(ranks), timed);
  if (!target.ok()) return target.status();
  job.why_target = target->why;
  if (schedules != 0 && (!is_emulated(target->target) || job.group != nullptr)) {
    return invalid_argument("--schedules needs an emulated target with all ranks in one process");
  }
  for (CaseRequest& request : job.cases) {
    request.options.target = target->target;
    request.options.ranks = static_cast<int>(ranks);
    if (!request.label.empty()) harness::scale_down(request, settings);
    if (seed >= 0) request.options.seed = static_cast<std::uint64_t>(seed);
    request.options.calls = static_cast<int>(calls);
    // Without --schedules the emulator uses its fast schedule, so that the large shapes of a suite do not take long.
    request.options.adversarial = schedules != 0;
    request.options.deadline = std::chrono::milliseconds(deadline_ms);
    request.options.fault = *fault;
    request.schedules = schedules != 0 ? static_cast<int>(schedules) : 1;
    if (!timed.empty()) request.bench = harness::BenchOptions{static_cast<int>(samples), !options.no_baselines};
  }
  return job;
}

}  // namespace farwarp::cli
