#include "version.h"

#include <fmt/format.h>

#include "farwarp/harness/params.h"
#include "farwarp_commit.h"
#include "target.h"

namespace farwarp::cli {

std::map<std::string, std::string> build_description() {
  std::string targets;
  for (const TargetKind target : kTargets) {
    if (!Device::has_kernels(target)) continue;
    harness::append_to_list(targets, " ", name_of(target));
  }
  return {{"version", FARWARP_VERSION}, {"commit", FARWARP_COMMIT}, {"targets", targets.empty() ? "none" : targets}};
}

std::string version_line() {
  auto build = build_description();
  return fmt::format("farwarp {}, commit {}, targets {}", build["version"], build["commit"], build["targets"]);
}

}  // namespace farwarp::cli
