#include "farwarp/harness/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "farwarp/harness/params.h"
#include "farwarp/substrate/emu/machine.h"

namespace farwarp::harness {
namespace {

using nlohmann::json;

// Ranks prepare and verify on the host at different speeds, so this is far longer than any wait of a kernel. A rank
// that is not alive is reported sooner (Bootstrap::set_longest_silence).
constexpr std::chrono::minutes kHostPatience{10};

CheckOutcome failure(Status status) {
  CheckOutcome outcome;
  outcome.detail = status.to_string();
  outcome.status = std::move(status);
  return outcome;
}

std::vector<std::byte> pack(const CheckOutcome& outcome) {
  std::vector<std::uint8_t> bytes =
      json::to_cbor(json{outcome.pass, outcome.detail, static_cast<int>(outcome.status.code()),
                         outcome.status.message(), outcome.rel_err, outcome.max_share, outcome.tile_share});
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

CheckOutcome unpack(const std::vector<std::byte>& bytes) {
  try {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const json fields = json::from_cbor(begin, begin + bytes.size());
    const auto code = static_cast<StatusCode>(fields.at(2).get<int>());
    return {fields.at(0).get<bool>(),   fields.at(1).get<std::string>(), Status(code, fields.at(3).get<std::string>()),
            fields.at(4).get<double>(), fields.at(5).get<double>(),      fields.at(6).get<double>()};
  } catch (const json::exception&) {
    return failure(internal_error("a rank's outcome cannot be read"));
  }
}

// From the most to the least: the check could not finish; the result is wrong; another rank failed.
int severity(const CheckOutcome& outcome) {
  if (outcome.pass) return 0;
  switch (outcome.status.code()) {
    case StatusCode::kOk: return 2;
    case StatusCode::kAborted: return 1;
    default: return 3;
  }
}

// Fails a check that passed although a fault was injected. A delay may pass: it was shorter than the deadline.
void fail_if_fault_did_not_fire(const Fault& fault, CheckOutcome& outcome) {
  if (!outcome.pass || fault.kind == Fault::Kind::kNone || fault.kind == Fault::Kind::kDelay) return;
  outcome.pass = false;
  outcome.detail = fmt::format("--fault {} never fired: every rank's results are right", to_string(fault));
}

// Runs the check or the bench as this rank. Returns the merged outcome of all ranks, or this rank's if the others do
// not answer.
CheckOutcome run_as_rank(Case& checked, const std::shared_ptr<Bootstrap>& bootstrap, const CaseRequest& request,
                         BenchOutcome& bench, bool& group_lost) {
  bootstrap->set_longest_silence(request.options.deadline);
  if (request.bench) {
    bench = checked.bench(bootstrap, request.options, *request.bench);
  } else {
    bench.check = checked.check(bootstrap, request.options);
  }
  std::vector<CheckOutcome> outcomes = {bench.check};
  const auto all = bootstrap->allgather(pack(outcomes[0]), kHostPatience);
  group_lost = !all.ok();
  if (all.ok()) {
    outcomes.clear();
    for (const auto& bytes : *all) outcomes.push_back(unpack(bytes));
  } else {
    outcomes.push_back(failure(all.status()));
  }
  CheckOutcome merged = merge_outcomes(outcomes);
  fail_if_fault_did_not_fire(request.options.fault, merged);
  return merged;
}

CheckOutcome run_in_process(Case& checked, const CaseRequest& request, BenchOutcome& bench) {
  const auto ranks = static_cast<std::size_t>(request.options.ranks);
  std::vector<CheckOutcome> merged(ranks);
  std::vector<BenchOutcome> benches(ranks);
  const Status status = run_ranks(request.options.ranks, [&](std::shared_ptr<Bootstrap> bootstrap) -> Status {
    const auto rank = static_cast<std::size_t>(bootstrap->rank());
    bool group_lost = false;
    merged[rank] = run_as_rank(checked, bootstrap, request, benches[rank], group_lost);
    return {};
  });
  bench = std::move(benches[0]);
  return status.ok() ? merged[0] : failure(status);
}

void run_schedules(Case& checked, CaseResult& result, const Progress& progress) {
  auto& machine = emu::Machine::instance();
  const RunOptions& options = result.request.options;
  std::uint64_t steps = 0;
  double seconds = 0;
  for (int schedule = 0; schedule < result.request.schedules; ++schedule) {
    progress(schedule);
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(schedule);
    machine.set_schedule({seed, options.adversarial});
    CheckOutcome outcome = run_in_process(checked, result.request, result.bench);
    const emu::ScheduleReport report = machine.report();
    if (!report.race.empty()) {  // an error even if the result is right
      outcome.pass = false;
      outcome.detail += (outcome.detail.empty() ? "" : "\n") + report.race;
    }
    result.schedule_hashes.push_back(report.hash);
    steps += report.thread_steps;
    seconds += report.seconds;
    result.outcome = schedule == 0 ? outcome : merge_outcomes(std::vector{result.outcome, outcome});
    if (outcome.pass) continue;
    if (!report.stall.empty()) result.outcome.detail += "\n" + report.stall;
    if (result.request.schedules > 1)
      result.outcome.detail = fmt::format("schedule seed {}: {}", seed, result.outcome.detail);
    break;
  }
  result.distinct_schedule_hashes = std::set(result.schedule_hashes.begin(), result.schedule_hashes.end()).size();
  if (seconds > 0) result.thread_steps_per_s = static_cast<double>(steps) / seconds;
}

}  // namespace

CheckOutcome merge_outcomes(std::span<const CheckOutcome> outcomes) {
  CheckOutcome merged = outcomes[0];
  for (const CheckOutcome& outcome : outcomes.subspan(1)) {
    const double rel_err = std::max(merged.rel_err, outcome.rel_err);
    const double max_share = std::max(merged.max_share, outcome.max_share);
    const double tile_share = std::max(merged.tile_share, outcome.tile_share);
    if (severity(outcome) > severity(merged)) merged = outcome;
    merged.rel_err = rel_err;
    merged.max_share = max_share;
    merged.tile_share = tile_share;
  }
  return merged;
}

std::vector<CaseRequest> plain_requests(const OperatorInfo& op, const Params& settings) {
  CaseRequest request;
  request.op = &op;
  request.params = settings;
  if (!settings.empty() || op.plain.empty()) return {request};
  std::vector<CaseRequest> requests;
  for (const Params& params : op.plain) {
    request.params = params;
    requests.push_back(request);
  }
  return requests;
}

void scale_down(CaseRequest& request, const Params& settings) {
  if (!request.op->scaled_down || !is_emulated(request.options.target)) return;
  Params scaled = request.op->scaled_down(request.params, request.options.ranks);
  for (const auto& [key, value] : settings) scaled[key] = value;
  request.scaled = scaled != request.params;
  request.params = std::move(scaled);
}

CaseResult run_case(const CaseRequest& request, const std::shared_ptr<Bootstrap>& group, const Progress& progress) {
  CaseResult result;
  result.request = request;
  const auto start = std::chrono::steady_clock::now();
  auto made = request.op->make(request.params);
  const Status injected = check_fault(*request.op, request.options.fault);
  if (!made.ok() || !injected.ok()) {
    result.outcome = failure(made.ok() ? injected : made.status());
  } else if (group == nullptr && is_emulated(request.options.target)) {
    run_schedules(**made, result, progress);
  } else {
    progress(0);
    result.outcome = group ? run_as_rank(**made, group, request, result.bench, result.group_lost)
                           : run_in_process(**made, request, result.bench);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

int exit_code(const CaseResult& result) { return result.outcome.pass ? 0 : exit_code(result.outcome.status); }

int exit_code(const Status& failure) {
  switch (failure.code()) {
    case StatusCode::kInvalidArgument: return 2;
    case StatusCode::kUnavailable:
    case StatusCode::kOutOfMemory: return 3;
    case StatusCode::kDeadline:
    case StatusCode::kAborted:
    case StatusCode::kPeerLost: return 4;
    default: return 1;
  }
}

int exit_code(std::span<const CaseResult> results) {
  int code = 0;
  for (const CaseResult& result : results) code = std::max(code, exit_code(result));
  return code;
}

void use_fast_schedule() { emu::Machine::instance().set_schedule({.adversarial = false}); }

}  // namespace farwarp::harness
