// The rank and size that the environment gives this process.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"

namespace farwarp {

/// getenv, or a test's replacement.
using GetEnv = std::function<const char*(const char* name)>;

struct RankEnvironment {
  int rank = 0;
  int size = 1;
  std::string rendezvous;  ///< empty only if size is 1
};

/// See bootstrap_from_environment().
Result<RankEnvironment> read_rank_environment(const GetEnv& get);

/// See environment_has_ranks().
bool has_ranks(const GetEnv& get);

/// All that launchers give a rank and a number of ranks in. A launcher keeps those of others from its processes.
std::vector<std::string_view> rank_variables();

}  // namespace farwarp
