// The group of processes that a launcher has started.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "farwarp/world/host/bootstrap.h"

namespace farwarp::cli {

/// nullptr if the environment says of no ranks. `ranks`: what the user asks for, 0 if nothing; of a group it becomes
/// the size, and an error says if it is another number.
Result<std::shared_ptr<Bootstrap>> join_group(std::int64_t& ranks, std::chrono::milliseconds timeout);

}  // namespace farwarp::cli
