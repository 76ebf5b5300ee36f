// farwarp submit check and submit bench: a kernel of somebody else, judged.
#include "submit.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "farwarp/base/file.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/harness/params.h"
#include "farwarp/judge/sandbox.h"
#include "farwarp/judge/trial.h"
#include "print.h"
#include "results_sink.h"
#include "run_job.h"

namespace farwarp::cli {
namespace {

using harness::CaseRequest;
using harness::CaseResult;

constexpr int kWarmUps = 2;  // calls of a bench that do not count; their number does not depend on how long they take
constexpr const char* kDefaultCalls = "6";
/// By how much the judge may wait longer, besides what judge::doubt() allows. Python: the interpreter makes tensors
/// before a call and copies its result afterwards, and its many threads wake up late.
constexpr double kSlackUs = 200, kPythonSlackUs = 10'000;

bool is_python(const std::string& file) {
  const std::string extension = std::filesystem::path(file).extension().string();
  return extension == ".py" || extension == ".PY";
}

Status check_file(const std::string& file) {
  std::string why;
  if (::access(file.c_str(), R_OK) != 0) why = std::string("cannot be read: ") + std::strerror(errno);
  if (const Status regular = check_regular(file); why.empty() && !regular.ok()) why = regular.message();
  if (why.empty()) return {};
  return invalid_argument(
      fmt::format("file is '{}': {}; allowed is a shared object, or a Python file (.py)", file, why));
}

/// On leaderboards.
Result<std::string> name_of(const SubmitOptions& options) {
  if (!options.selection.label.empty()) return options.selection.label;
  const std::string name = std::filesystem::path(options.file).stem().string();
  Status status = check_label("without --label the name would be", name);
  return status.ok() ? Result<std::string>(name) : status;
}

/// Of the parameters that a submission's case may choose.
harness::Params defaults_of(const harness::OperatorInfo& op) {
  harness::Params params;
  for (const harness::ParamInfo& info : op.params) {
    if (op.submission && op.submission->count(info.name) == 0) params[info.name] = info.default_value;
  }
  return params;
}

/// Ok if the case can be one of a submission.
Status check_case(const CaseRequest& request) {
  if (!request.op->submission) {
    std::string names;
    for (const harness::OperatorInfo& op : harness::registered_ops()) {
      if (op.submission) harness::append_to_list(names, ", ", op.name);
    }
    return invalid_argument(fmt::format("operator is '{}': allowed for a submission is {}", request.op->name, names));
  }
  for (const auto& [name, value] : *request.op->submission) {
    const auto given = request.params.find(name);
    if (given != request.params.end() && given->second != value)
      return invalid_argument(
          fmt::format("parameter {} is '{}': allowed for a submission is {}", name, given->second, value));
  }
  return {};
}

void add_times(const judge::Trial& trial, const std::string& name, double slack_us, CaseResult& result) {
  const bool emulated = is_emulated(result.request.options.target);
  const auto& times = trial.times();
  const std::vector<judge::CallTime> counted(times.begin() + std::min<std::ptrdiff_t>(kWarmUps, std::ssize(times)),
                                             times.end());
  std::vector<double> us;
  for (const judge::CallTime& time : counted) {
    if (!time.late) us.push_back(emulated ? time.judged_us : time.claimed_us);
  }
  harness::Measurement measured;
  measured.name = name;
  measured.time_us = harness::summarise(std::move(us));
  result.bench.measurements = {std::move(measured)};
  result.bench.plan.clear();
  result.bench.no_baseline = "a submission is timed alone";
  if (!emulated && result.outcome.pass) {
    result.outcome.detail = judge::doubt(counted, trial.overhead(), slack_us);
    result.outcome.pass = result.outcome.detail.empty();
  }
  if (!result.outcome.pass) result.bench.measurements.clear();  // nobody reads a time that does not count
}

CaseResult fail(const CaseRequest& request, const Status& status) {
  CaseResult result;
  result.request = request;
  result.outcome.detail = status.to_string();
  result.outcome.status = status;
  return result;
}

CaseResult judge_case(CaseRequest request, const judge::TrialOptions& options, const std::string& name,
                      const harness::Progress& progress) {
  std::random_device random;  // nobody can know the data of a call before it is made
  request.options.seed = std::uint64_t{random()} << 32 | random();
  const harness::Params chosen = request.params;
  for (const auto& [parameter, value] : *request.op->submission) request.params[parameter] = value;
  if (request.bench) request.options.calls = request.bench->samples + kWarmUps;
  auto trial = judge::Trial::start(request, options);
  if (!trial.ok()) return fail(request, trial.status());
  harness::set_submission(trial->get());
  CaseResult result = harness::run_case(request, nullptr, progress);
  harness::set_submission(nullptr);
  const Status finished = (*trial)->finish();
  if (result.outcome.pass && !finished.ok()) {
    result.outcome.pass = false;
    result.outcome.detail = finished.to_string();
    result.outcome.status = finished;
  }
  if (request.bench) add_times(**trial, name, options.is_python ? kPythonSlackUs : kSlackUs, result);
  result.bench.check = result.outcome;
  result.request.params = chosen;  // tables and results name what can differ
  return result;
}

int submit(const SubmitOptions& options, bool bench) {
  CheckOptions selection = options.selection;
  if (selection.calls.empty()) selection.calls = kDefaultCalls;
  if (Status status = check_file(options.file); !status.ok()) return cli::fail(status);
  const auto name = bench ? name_of(options) : Result<std::string>(std::string());
  if (!name.ok()) return cli::fail(name.status());
  judge::TrialOptions trial;
  if (!options.limit_s.empty()) {
    const auto limit = harness::parse_integer("--time-limit-s", options.limit_s, 1, 3600);
    if (!limit.ok()) return cli::fail(limit.status());
    trial.limit = std::chrono::seconds(*limit);
  }
  auto job = make_job(selection, bench ? "bench" : "");
  if (job.ok()) {
    // Without a suite: one case. The others of a check show what the operator computes besides.
    if (selection.suite.empty() && selection.settings.empty()) {
      job->cases.resize(1);
      job->cases[0].params = defaults_of(*job->cases[0].op);
    }
    Status status = job->group == nullptr
                        ? Status()
                        : invalid_argument("submit starts its ranks itself: allowed is a process without a launcher");
    for (const CaseRequest& request : job->cases) {
      if (status.ok()) status = check_case(request);
      if (status.ok() && is_python(options.file) && is_emulated(request.options.target))
        status = unavailable(
            fmt::format("file is '{}': a Python file (custom_kernel) needs a GPU; allowed on the emulator is a shared "
                        "object (farwarp submit new)",
                        options.file));
    }
    if (!status.ok()) return cli::fail(status);
  }
  if (Status status = judge::hide_memory(); !status.ok()) return cli::fail(status);
  harness::keep_streams_apart();
  ::signal(SIGCHLD, SIG_DFL);  // of a launcher that ignored it: ends of processes would be lost
  std::error_code error;
  trial.submission = std::filesystem::canonical(options.file, error).string();
  trial.is_python = is_python(options.file);
  trial.command = {"/proc/self/exe", "submit", "rank"};  // this program, also if its file was replaced
  if (trial.is_python) {
    const char* const python = std::getenv("FARWARP_PYTHON");
    trial.command = {python != nullptr ? python : "python3", "-m", "farwarp.submission", trial.submission};
  }
  if (bench && job.ok() && is_emulated(job->cases[0].options.target))
    print_text(stderr, "times of the emulator's host: they say nothing about any machine\n");
  Runner runner;
  runner.entry = "submission " + *name;
  runner.run = [&](const CaseRequest& request, const std::shared_ptr<Bootstrap>&, const harness::Progress& progress) {
    return judge_case(request, trial, *name, progress);
  };
  return run_job(selection, job, runner);
}

}  // namespace

int submit_check_command(const SubmitOptions& options) { return submit(options, false); }

int submit_bench_command(const SubmitOptions& options) {
  SubmitOptions selected = options;
  CheckOptions& selection = selected.selection;
  if (selection.which == "all" && !selection.suite.empty()) selection.which = "benchmarks";
  return submit(selected, true);
}

}  // namespace farwarp::cli
