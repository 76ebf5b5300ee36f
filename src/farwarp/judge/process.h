// The process of one rank of a submission.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "farwarp/base/status.h"
#include "farwarp/world/host/connection.h"

namespace farwarp::judge {

/// Move-only; the process is killed with it.
class Process {
 public:
  /// Starts a program, which is looked for in $PATH, with its arguments; one more is added: the number of the
  /// descriptor that leads to connection(). The process ends with the calling thread. Its standard output is this
  /// process's standard error.
  static Result<Process> start(std::vector<std::string> command);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  Connection& connection() { return connection_; }
  pid_t pid() const { return pid_; }
  /// No thread of it runs until resume(). Returns when that is so. kPeerLost if it has ended.
  Status stop();
  void resume() const;
  /// Waits for its end, at most so long. Empty if it has not ended, else how: "crashed: Segmentation fault".
  std::string how_it_ended(std::chrono::milliseconds longest);

 private:
  Process(pid_t pid, UniqueFd socket) : pid_(pid), connection_(std::move(socket)) {}
  void keep(int status);

  pid_t pid_ = -1;
  std::string ended_;
  Connection connection_;
};

}  // namespace farwarp::judge
