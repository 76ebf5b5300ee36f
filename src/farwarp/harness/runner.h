// Runs Cases: ranks as threads of this process, or this process as one rank of a launched group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/case.h"
#include "farwarp/harness/problem.h"
#include "farwarp/world/host/bootstrap.h"

namespace farwarp::harness {

/// One case to run.
struct CaseRequest {
  const OperatorInfo* op = nullptr;
  std::string label;  ///< "tests[3]" of a suite, or empty
  Params params;
  bool scaled = false;                ///< `params` are the suite's, scaled down for the emulator
  std::string about;                  ///< SuiteEntry::about
  std::string source;                 ///< SuiteEntry::source
  int suite_ranks = 0;                ///< that the suite states the case for; 0: of no suite
  Problem problem = Problem::kWhole;  ///< how the case came from suite_ranks to options.ranks
  RunOptions options;
  /// Emulator: the check is repeated under schedules options.seed .. options.seed + schedules - 1, with the same
  /// inputs.
  int schedules = 1;
  std::optional<double> speed_of_light_us;
  std::optional<BenchOptions> bench;  ///< time it instead of checking it
};

struct CaseResult {
  CaseRequest request;
  CheckOutcome outcome;     ///< the worst of all ranks and schedules
  BenchOutcome bench;       ///< with CaseRequest::bench; its `check` is `outcome`
  bool group_lost = false;  ///< other ranks did not answer: the outcome is this rank's own, and the group is unusable
  /// One per schedule that ran; empty on real devices and in groups of processes, where no global schedule exists.
  std::vector<std::uint64_t> schedule_hashes;
  std::size_t distinct_schedule_hashes = 0;
  double thread_steps_per_s = 0;  ///< of the emulator
  double seconds = 0;             ///< host time, preparation and verification included
};

/// What `farwarp check OP` runs if nothing else is said. `settings` (from --set) make it one case.
std::vector<CaseRequest> plain_requests(const OperatorInfo& op, const Params& settings = {});

/// Scales down the shape of a suite's case for an emulated target, if the operator has OperatorInfo::scaled_down.
/// Parameters in `settings` (from --set) keep their values.
void scale_down(CaseRequest& request, const Params& settings);

/// Called before each schedule, with its number from 0.
using Progress = std::function<void(int schedule)>;

/// `group`: this process's place in a launched group; nullptr: all ranks are threads of this process. Every rank
/// returns the merged outcome of all ranks. Stops at the first schedule that fails and names its seed, so that it can
/// be run again.
CaseResult run_case(const CaseRequest& request, const std::shared_ptr<Bootstrap>& group, const Progress& progress);

/// One outcome for several: the largest errors, and the failure that says most about the cause (kDeadline on one rank
/// says more than kAborted on another).
CheckOutcome merge_outcomes(std::span<const CheckOutcome> outcomes);

/// 0 all passed, 1 a check failed, 2 bad input, 3 the machine lacks something, 4 timeout or abort.
int exit_code(const CaseResult& result);
/// The same for a run that failed as a whole. An ok status counts as a failed check.
int exit_code(const Status& failure);
/// The highest exit code of several cases.
int exit_code(std::span<const CaseResult> results);

/// The emulator runs what follows by its fast schedule, for commands that check nothing.
void use_fast_schedule();

}  // namespace farwarp::harness
