// The validated request of check, bench or tune.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "farwarp/harness/report.h"
#include "farwarp/harness/runner.h"
#include "farwarp/results/record.h"
#include "farwarp/world/host/bootstrap.h"

namespace farwarp::cli {

struct Job {
  std::vector<harness::CaseRequest> cases;
  harness::SkippedByOp skipped;
  std::shared_ptr<Bootstrap> group;  ///< of launched processes, or nullptr
  std::string why_target;
  results::Origin origin;          ///< suite and settings, for results that are kept
  std::vector<std::string> files;  ///< that it is read from
};

/// `timed`: the name of the command if it times its cases, else empty. trace, too, which takes one case. An error says
/// which option is wrong, or what the machine lacks.
Result<Job> make_job(const CheckOptions& options, std::string_view timed);

}  // namespace farwarp::cli
