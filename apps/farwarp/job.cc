#include "job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "farwarp/harness/params.h"
#include "farwarp/harness/problem.h"
#include "farwarp/harness/suite.h"
#include "farwarp/world/view.h"
#include "formats/any_suite.h"
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

std::string registered_names() {
  std::string names;
  for (const OperatorInfo& op : harness::registered_ops()) harness::append_to_list(names, ", ", op.name);
  return names.empty() ? "none" : names;
}

// The operator's, or the suite's. Cases of operators that are not in this build are counted as skipped.
Status select_cases(const CheckOptions& options, const Params& settings, std::string_view timed, Job& job) {
  const bool what_is_file = harness::is_suite_file(options.what);
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
  auto loaded = load_any_suite(suite_name, op_name);
  if (!loaded.ok()) return loaded.status();
  job.files = std::move(loaded->files);
  job.skipped = std::move(loaded->skipped);
  job.origin.suite = loaded->suite.name;
  for (const auto& [key, value] : settings)
    harness::append_to_list(job.origin.settings, ",", fmt::format("{}={}", key, value));
  if (options.problem == "share") harness::append_to_list(job.origin.settings, ",", "problem=share");
  for (const harness::SuiteEntry& entry : loaded->suite.entries) {
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
    request.about = entry.about;
    request.source = entry.source;
    request.suite_ranks = entry.ranks;
    request.options.ranks = entry.states_ranks ? entry.ranks : 0;
    request.options.seed = entry.seed;
    request.speed_of_light_us = entry.speed_of_light_us;
    job.cases.push_back(std::move(request));
  }
  if (job.cases.empty()) return invalid_argument(fmt::format("no case of suite {} is selected", loaded->suite.name));
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

/// Gives each case its number of ranks: `ranks` if that is not 0, and its parameters on so many. `settings` are of the
/// ranks that run. The whole problem of an entry that states its ranks is left out on others: the suite has it for
/// these, too.
Status place_on_ranks(int ranks, const std::string& problem, const Params& settings, Job& job) {
  const auto parsed = harness::parse_problem(problem);
  if (!parsed.ok()) return parsed.status();
  const bool of_suite = std::any_of(job.cases.begin(), job.cases.end(),
                                    [](const CaseRequest& request) { return request.suite_ranks != 0; });
  if (*parsed == harness::Problem::kShare && !of_suite)
    return invalid_argument("--problem is 'share': allowed with a suite, of which a rank's share is known");
  std::vector<CaseRequest> placed;
  for (CaseRequest& request : job.cases) {
    const int stated = request.suite_ranks != 0 ? request.options.ranks : 0;
    if (*parsed == harness::Problem::kWhole && ranks != 0 && stated != 0 && stated != ranks) {
      auto& skipped = job.skipped[request.op->name];
      ++skipped.cases;
      skipped.reason = fmt::format("not of {} ranks", ranks);
      continue;
    }
    request.problem = *parsed;
    request.options.ranks = ranks != 0 ? ranks : request.suite_ranks != 0 ? request.suite_ranks : kDefaultRanks;
    if (request.suite_ranks != 0) {
      auto params =
          harness::params_on_ranks(*request.op, request.params, *parsed, request.suite_ranks, request.options.ranks);
      if (!params.ok())
        return invalid_argument(fmt::format("{} {}: {}", request.op->name, request.label, params.status().message()));
      request.params = std::move(*params);
      for (const auto& [key, value] : settings) request.params[key] = value;
    }
    placed.push_back(std::move(request));
  }
  job.cases = std::move(placed);
  if (job.cases.empty())
    return invalid_argument(fmt::format("--ranks is '{}': no case of the suite is of so many", ranks));
  return {};
}

/// The least and the most ranks of the cases.
std::pair<int, int> range_of_ranks(const Job& job) {
  const auto [least, most] = std::minmax_element(job.cases.begin(), job.cases.end(), [](const auto& a, const auto& b) {
    return a.options.ranks < b.options.ranks;
  });
  return {least->options.ranks, most->options.ranks};
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
  if (status.ok()) status = select_cases(options, settings, timed, job);
  if (status.ok()) status = check_params(job);
  if (!status.ok()) return status;
  auto group = join_group(ranks, std::chrono::milliseconds(deadline_ms));
  if (!group.ok()) return group.status();
  job.group = std::move(*group);
  status = place_on_ranks(static_cast<int>(ranks), options.problem, settings, job);
  if (status.ok()) status = check_params(job);
  if (!status.ok()) return status;
  const auto [least_ranks, most_ranks] = range_of_ranks(job);
  Result<harness::Fault> fault = harness::Fault{};
  if (!options.fault.empty()) fault = harness::parse_fault(options.fault, least_ranks);
  if (!fault.ok()) return fault.status();
  for (const CaseRequest& request : job.cases) {
    if (Status injected = harness::check_fault(*request.op, *fault); !injected.ok()) return injected;
  }
  const auto target = choose(options, most_ranks, timed);
  if (!target.ok()) return target.status();
  job.why_target = target->why;
  if (schedules != 0 && (!is_emulated(target->target) || job.group != nullptr)) {
    return invalid_argument("--schedules needs an emulated target with all ranks in one process");
  }
  for (CaseRequest& request : job.cases) {
    request.options.target = target->target;
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
