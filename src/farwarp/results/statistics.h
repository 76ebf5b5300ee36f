// What samples of times say, and whether two sets of them differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace farwarp::results {

/// Quartiles by linear interpolation, in the unit of the samples; zeros without samples.
struct Quartiles {
  double q1 = 0, median = 0, q3 = 0;
  int n = 0;
};
Quartiles quartiles_of(std::span<const double> samples);

/// 0 if there are no values, or one of them is not greater than 0.
double geometric_mean(std::span<const double> values);

enum class Verdict : std::uint8_t { kFaster, kSlower, kSame, kUndecided };
constexpr std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFaster: return "FASTER";
    case Verdict::kSlower: return "SLOWER";
    case Verdict::kSame: return "SAME";
    case Verdict::kUndecided: return "UNDECIDED";
  }
  return "?";
}

/// SAME: the medians differ by at most this part of A's.
inline constexpr double kTolerance = 0.02;
/// FASTER, SLOWER: the interquartile ranges are apart by at least this part of A's median. Two processes of one program
/// can differ by less than that for good: by where their memory lies.
inline constexpr double kClearGap = 0.005;
/// With fewer samples of a side nothing is decided.
inline constexpr int kFewestSamples = 8;

/// B against A.
struct Judgement {
  Verdict verdict = Verdict::kUndecided;
  Quartiles a, b;
  double ratio = 0;    ///< median of B / median of A; 0 without samples
  std::string reason;  ///< why it is UNDECIDED, else empty
};

/// FASTER or SLOWER if the interquartile ranges are apart by a clear gap, else SAME if the medians are within the
/// tolerance, else UNDECIDED. (Means and deviations are of no use here: a few late samples move both.)
Judgement judge(std::span<const double> a, std::span<const double> b);

/// The judgement of times, confirmed by one of cycles: if cycles say otherwise, it is UNDECIDED.
Judgement confirmed(Judgement times, const Judgement& cycles);

}  // namespace farwarp::results
