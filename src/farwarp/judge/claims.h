// Whether the times that the processes of a submission claim can be true.
#pragma once

#include <string>
#include <vector>

namespace farwarp::judge {

/// A call, as it was timed. Microseconds.
struct CallTime {
  double judged_us = 0;   ///< by the judge: from the word to go until the processes of all ranks had stopped
  double claimed_us = 0;  ///< by the ranks' events, the slowest; 0 on the emulator
  bool late = false;      ///< a rank's host enqueued it too late: no time
};

/// How long the judge waits for an empty call.
struct Overhead {
  double median_us = 0, spread_us = 0;  ///< spread: the longest less the shortest
};
Overhead overhead_of(const std::vector<double>& waits_us);

/// Why these times do not count, or nothing. A call is impossible if the judge waited longer for it than for an empty
/// one by more than twice the claim, twice the spread and `slack_us`. A quarter of the calls may be late or impossible:
/// processes wake up late now and then, and a median does not move by them.
std::string doubt(const std::vector<CallTime>& calls, const Overhead& overhead, double slack_us);

}  // namespace farwarp::judge
