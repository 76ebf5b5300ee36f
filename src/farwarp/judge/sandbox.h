// What the process of a submission may not do.
#pragma once

#include "farwarp/base/status.h"

namespace farwarp::judge {

/// First in a process that will load a submission, before it has threads: it ends with the thread that started it,
/// leaves no core file, has no capabilities, and no process of the same user can read its memory.
Status give_up_privileges();

/// Other processes of the user cannot read this process's memory, nor its open files, through /proc.
Status hide_memory();

/// From now on the kernel ends this process (SIGSYS) if one of its threads starts a process or a program, traces or
/// reads another process, takes a descriptor of it, or sends it a signal. What lets the kernel send signals later
/// (timers, owners of descriptors) fails with EPERM. Threads are allowed. `may_start`: so are processes and programs,
/// which are confined alike.
Status confine(bool may_start);

}  // namespace farwarp::judge
