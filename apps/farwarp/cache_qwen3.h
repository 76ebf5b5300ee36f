// farwarp cache qwen3: a simulation of the caches for the products of a token.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/machine/cache_machine.h"
#include "farwarp/machine/cache_model.h"

namespace farwarp::cli {

/// Prints a table of all traversals, and returns it. kInvalidArgument names the setting.
Result<nlohmann::json> cache_qwen3(std::FILE* stream, const CacheMachine& machine,
                                   const std::vector<std::string>& settings, const CacheOptions& options);

}  // namespace farwarp::cli
