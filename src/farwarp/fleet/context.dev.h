// What a worker's warps know in a launch.
#pragma once

#include "farwarp/fleet/launch.h"
#include "farwarp/fleet/project.dev.h"
#include "farwarp/fleet/sites.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <class Word>
FARWARP_DEVICE Shared<Word> word_at(Shared<std::byte> memory, int offset) {
  return Shared<Word>(reinterpret_cast<Word*>((memory + offset).raw));
}

/// `Args`: the kernel's, with a Launch as `launch`. A model adds what it needs.
template <class Args, int columns>
struct WorkerContext {
  const Args& args;
  Call& call;  ///< its epoch is the tag of the token and layer
  Shared<std::byte> memory;
  Worker<columns> worker;
};

FARWARP_DEVICE InputNorm norm_of(const Launch& launch, const Task& task) {
  return {task.in_norm_rows != 0, task.in_norm_rows, launch.epsilon};
}

/// Waits on peers end before those on this rank's workers, so the ledger names the missing peer; `depth`: of the
/// deepest of these waits.
FARWARP_DEVICE Call waiting_on_peers(const Call& call, int depth = 0) {
  Call earlier = call;
  earlier.deadline_ns -= (1 + depth) * call.grace_ns;
  return earlier;
}

}  // namespace farwarp::FARWARP_TARGET::fleet
