// `farwarp launch`: N processes of one command that find each other.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace farwarp::cli {

struct LaunchOptions {
  /// The longest wait of the ranks' kernels. Unset: what the command says after --deadline-ms, or else 10 s.
  std::optional<std::chrono::milliseconds> deadline;
  /// After the deadline, for reports. Ranks may outlive one that died by a signal by the deadline and this time; then
  /// they get SIGTERM and, this time later, SIGKILL. Ranks that are interrupted, or stopped while the others are gone and
  /// one of them has failed, have this time alone.
  std::chrono::milliseconds report_time{10'000};
};

/// Runs `command` (found on PATH) in `ranks` processes with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE and a fresh
/// FARWARP_RENDEZVOUS, and passes on their output line by line as "[rank] line". SIGINT, SIGTERM and SIGHUP are
/// forwarded; nothing that the ranks started outlives the call. Returns the code of the rank that failed first (128 + n
/// if signal n ended it), 128 + n if this process got signal n, 2 if the command cannot be run, or 0. Call it from the
/// main thread of a process without others.
int launch_command(int ranks, const std::vector<std::string>& command, const LaunchOptions& options = {});

}  // namespace farwarp::cli
