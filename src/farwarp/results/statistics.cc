#include "farwarp/results/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "farwarp/harness/timing.h"

namespace farwarp::results {

Quartiles quartiles_of(std::span<const double> samples) {
  if (samples.empty()) return {};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return {harness::quantile(sorted, 0.25), harness::quantile(sorted, 0.5), harness::quantile(sorted, 0.75),
          static_cast<int>(sorted.size())};
}

double geometric_mean(std::span<const double> values) {
  double logarithms = 0;
  for (const double value : values) {
    if (!(value > 0)) return 0;
    logarithms += std::log(value);
  }
  return values.empty() ? 0 : std::exp(logarithms / static_cast<double>(values.size()));
}

Judgement judge(std::span<const double> a, std::span<const double> b) {
  Judgement judgement{Verdict::kUndecided, quartiles_of(a), quartiles_of(b), 0, {}};
  const Quartiles &one = judgement.a, &other = judgement.b;
  if (one.median > 0) judgement.ratio = other.median / one.median;
  if (std::min(one.n, other.n) < kFewestSamples) {
    judgement.reason = fmt::format("{} and {} samples; at least {} of each are needed", one.n, other.n, kFewestSamples);
    return judgement;
  }
  const double clear = kClearGap * one.median;
  if (other.q1 - one.q3 >= clear && clear > 0) {
    judgement.verdict = Verdict::kSlower;
  } else if (one.q1 - other.q3 >= clear && clear > 0) {
    judgement.verdict = Verdict::kFaster;
  } else if (std::abs(judgement.ratio - 1) <= kTolerance) {
    judgement.verdict = Verdict::kSame;
  } else {
    judgement.reason = "the medians differ, and the interquartile ranges are not apart";
  }
  return judgement;
}

Judgement confirmed(Judgement times, const Judgement& cycles) {
  if (times.verdict == cycles.verdict || times.verdict == Verdict::kUndecided) return times;
  times.reason =
      fmt::format("{} in time, {} in cycles: the clocks differed", name_of(times.verdict), name_of(cycles.verdict));
  times.verdict = Verdict::kUndecided;
  return times;
}

}  // namespace farwarp::results
