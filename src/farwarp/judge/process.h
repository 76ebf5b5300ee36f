// The process of one rank of a submission.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/world/host/connection.h"

namespace farwarp::judge {

/// Move-only; the process is killed with it.
class Process {
 public:
  /// Starts a program, which is looked for in $PATH, with its arguments; one more is added: the number of the
  /// descriptor that leads to connection(). The process ends with the calling thread, and has a session of its own.
  /// show_output() begins lines with `mark`.
  static Result<Process> start(std::vector<std::string> command, const std::string& mark);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  Connection& connection() { return connection_; }
  pid_t pid() const { return pid_; }
  /// No thread of it runs until resume(). Returns when that is so. kPeerLost if it has ended, kMisuse if it has been
  /// stopped before and has run meanwhile.
  Status stop();
  /// kMisuse if it has run since stop(): somebody else has sent it SIGCONT.
  Status resume();
  /// Copies what it has written to its standard output and error, at most 64 KB in all, to this process's standard
  /// error, line by line, without control characters. With the process's end come a line that has not ended, and the
  /// last lines of what was more.
  void show_output();
  /// To poll for show_output().
  int output() const { return output_.get(); }
  /// Waits for its end, at most so long. Empty if it has not ended, else how: "crashed: Segmentation fault".
  std::string how_it_ended(std::chrono::milliseconds longest);

 private:
  Process(pid_t pid, UniqueFd socket, UniqueFd output, std::string mark)
      : pid_(pid), connection_(std::move(socket)), output_(std::move(output)), mark_(std::move(mark)) {}
  void end_line();
  void show_rest();
  void keep(int status);
  Status has_stayed_stopped();

  pid_t pid_ = -1;
  std::string ended_;
  Connection connection_;
  bool stopped_ = false;
  UniqueFd output_;
  std::string mark_, line_;  ///< line: of its output, not ended yet
  std::size_t shown_bytes_ = 0;
  std::deque<std::string> last_lines_;  ///< that were not shown
};

}  // namespace farwarp::judge
