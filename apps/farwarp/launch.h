// `farwarp launch`: runs one command in N processes, which find each other.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace farwarp::cli {

struct LaunchOptions {
  /// The longest wait of the ranks' kernels. Unset: the command's own --deadline-ms, or else 10 s.
  std::optional<std::chrono::milliseconds> deadline;
  /// Time for reports after the deadline. After a rank has failed, the others may run for the deadline plus this time;
  /// then they get SIGTERM, and SIGKILL after this time again. Ranks that are interrupted get only this time. So do
  /// ranks that are stopped while the others are gone and one of them has failed.
  std::chrono::milliseconds report_time{10'000};
};

/// Runs `command` (found on PATH) in `ranks` processes with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE and a fresh
/// FARWARP_RENDEZVOUS, and forwards their output line by line as "[rank] line". SIGINT, SIGTERM and SIGHUP are
/// forwarded. All processes of the ranks' process groups are gone when it returns. Returns the code of the rank that
/// failed first (128 + n if signal n ended it), 3 if before that something that a rank wrote could not be written, 128
/// + n if this process got signal n, 2 if the command cannot be run, or 0. Call it from the main thread of a
/// process that has no other threads.
int launch_command(int ranks, const std::vector<std::string>& command, const LaunchOptions& options = {});

}  // namespace farwarp::cli
