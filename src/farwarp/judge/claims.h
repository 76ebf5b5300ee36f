// Whether the times that the processes of a submission claim can be true.
#pragma once

#include <string>
#include <vector>

namespace farwarp::judge {

/// A call, as it was timed. Microseconds.
struct CallTime {
  double judged_us = 0;   ///< by the judge: from the word to go until the processes of all ranks had stopped
  double claimed_us = 0;  ///< by the ranks' events, the slowest; 0 on the emulator
};

/// What is impossible about one of these calls, or nothing: the judge waited longer than twice what was claimed, plus
/// `overhead_us` (its wait for an empty call) and `slack_us`.
std::string impossible_claim(const std::vector<CallTime>& calls, double overhead_us, double slack_us);

}  // namespace farwarp::judge
