#include "farwarp/judge/claims.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/harness/timing.h"

namespace farwarp::judge {

Overhead overhead_of(const std::vector<double>& waits_us) {
  if (waits_us.empty()) return {};
  const auto [least, most] = std::minmax_element(waits_us.begin(), waits_us.end());
  return {harness::summarise(waits_us).median, *most - *least};
}

std::string doubt(const std::vector<CallTime>& calls, const Overhead& overhead, double slack_us) {
  std::size_t late = 0, impossible = 0;
  std::string example;
  for (const CallTime& call : calls) {
    const double waited = call.judged_us - overhead.median_us;
    if (call.late) {
      ++late;
    } else if (call.claimed_us <= 0 || waited > 2 * call.claimed_us + 2 * overhead.spread_us + slack_us) {
      ++impossible;
      example = fmt::format("claims {:.2f} us, and the judge waited {:.2f} us longer than for nothing", call.claimed_us,
                            waited);
    }
  }
  if (4 * impossible > calls.size())
    return fmt::format("the submission's process {} (so in {} of {} calls)", example, impossible, calls.size());
  if (4 * (late + impossible) > calls.size())
    return fmt::format("{} of {} calls were enqueued late: allowed is a quarter; run() must not wait for the device",
                       late, calls.size());
  return {};
}

}  // namespace farwarp::judge
