// Subgroups of any bootstrap.
#pragma once

#include <chrono>
#include <memory>

#include "farwarp/base/status.h"
#include "farwarp/world/host/bootstrap.h"

namespace farwarp {

/// Collective over `parent`: the ranks of one colour form a group of their own, in the parent's order. The group does
/// not need the parent afterwards. A rank with colour -1 joins none and gets kUnavailable.
Result<std::shared_ptr<Bootstrap>> split_bootstrap(Bootstrap& parent, int colour, std::chrono::milliseconds timeout);

}  // namespace farwarp
