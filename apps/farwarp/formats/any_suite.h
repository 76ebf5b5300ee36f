// Suites of others, read as suites of ours.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/report.h"
#include "farwarp/harness/suite.h"

namespace farwarp::cli {

struct LoadedSuite {
  harness::Suite suite;
  harness::SkippedByOp skipped;    ///< what of a folder no operator of ours computes
  std::vector<std::string> files;  ///< that it was read from
};

/// A suite of ours (harness::load_suite()); a FlashInfer-Bench definition or its workloads, or a folder of both; a
/// KernelBot task.yml. `op`: the operator that the user names, or empty. An error names the file and what is allowed.
Result<LoadedSuite> load_any_suite(const std::string& name, const std::string& op);

/// The tests and benchmarks of a KernelBot task. It does not say of which operator it is: that is `op`, or what the
/// task's folder is called. `file` is the name in errors.
Result<harness::Suite> parse_task(std::string_view text, const std::string& file, const std::string& op);

}  // namespace farwarp::cli
