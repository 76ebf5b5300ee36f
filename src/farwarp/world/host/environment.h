// The rank and size that the environment gives this process.
#pragma once

#include <functional>
#include <string>

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

}  // namespace farwarp
