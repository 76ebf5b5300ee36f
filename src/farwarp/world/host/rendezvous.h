// How processes of one host find each other: every rank listens at a name in the abstract socket namespace and connects
// to all lower ranks; all higher ranks connect to it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/world/host/connection.h"
#include "farwarp/world/host/unique_fd.h"

namespace farwarp {

struct Mesh {
  /// By rank; this rank's own entry is empty.
  std::vector<Connection> peers;
  /// Accepts no more connections, but keeps the name: a second job with the same rendezvous finds it in use.
  UniqueFd name;
};

/// All ranks must be processes of one user: each side asks the kernel who is at the other end before it sends anything.
/// kUnavailable if another process is this rank at this rendezvous, or another user's process holds the name of this or
/// of a lower rank; kMismatch if a lower rank was started for another size; kDeadline names the ranks that are missing.
Result<Mesh> connect_mesh(int rank, int size, const std::string& rendezvous, std::chrono::milliseconds timeout);

}  // namespace farwarp
