// What the bootstraps have in common.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"

namespace farwarp::detail {

/// Which collective a rank is in.
enum class CollectiveKind : std::uint32_t { kAllgather = 1, kAllgatherFds = 2 };
std::string_view name_of(CollectiveKind kind);

/// ok if all ranks are in the same collective; else kMismatch, with the same message on every rank.
Status check_same_collective(const std::vector<CollectiveKind>& kinds);

/// "rank 3" or "ranks 2, 5 and 7".
std::string name_ranks(const std::vector<int>& ranks);

/// kDeadline: the `missing` ranks were not at `where` in time.
Status ranks_did_not_come(const std::vector<int>& missing, std::string_view where, std::chrono::milliseconds timeout);

/// Now + timeout, without overflow for "forever".
std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout);

}  // namespace farwarp::detail
