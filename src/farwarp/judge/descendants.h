// Processes that a submission in Python has started: compilers may run in create(), nothing may in a call.
#pragma once

#include <sys/types.h>

#include <vector>

#include "farwarp/base/status.h"

namespace farwarp::judge {

/// From now on this process is the parent of processes whose parent, a process of a submission, has ended.
Status adopt_orphans();

/// Processes that `ranks`, children of this process, have started and that have not ended, children of children too.
/// Orphans that have ended are waited for. kUnavailable if the kernel does not tell.
Result<std::vector<pid_t>> descendants_of(const std::vector<pid_t>& ranks);

}  // namespace farwarp::judge
