#include "farwarp/judge/claims.h"

#include <fmt/format.h>

namespace farwarp::judge {

std::string impossible_claim(const std::vector<CallTime>& calls, double overhead_us, double slack_us) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const double waited = calls[i].judged_us - overhead_us, claimed = calls[i].claimed_us;
    if (claimed > 0 && waited <= 2 * claimed + slack_us) continue;
    return fmt::format(
        "sample {}: the submission's process claims {:.2f} us, and the judge waited {:.2f} us longer than for nothing",
        i, claimed, waited);
  }
  return {};
}

}  // namespace farwarp::judge
