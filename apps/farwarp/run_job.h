// What check, bench and submit do with a job.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "job.h"

namespace farwarp::cli {

/// Who runs the cases.
struct Runner {
  std::function<harness::CaseResult(const harness::CaseRequest&, const std::shared_ptr<Bootstrap>& group,
                                    const harness::Progress&)>
      run = harness::run_case;
  std::string entry = {};  ///< whose times they are on leaderboards; empty: farwarp's
};

/// Runs a job, prints its table, writes JSON, and keeps the results of a bench. Returns the exit code.
int run_job(const CheckOptions& options, const Result<Job>& job, const Runner& runner = {});

}  // namespace farwarp::cli
