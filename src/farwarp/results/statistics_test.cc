#include "farwarp/results/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace farwarp::results {
namespace {

/// Times of a kernel: log-normal, each correlated with the one before (0.6), and 4% of them late by up to a third.
/// `spread` is the standard deviation of the logarithm.
std::vector<double> times(std::mt19937_64& random, int n, double median, double spread) {
  constexpr double kCorrelation = 0.6;
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<double> samples;
  double state = normal(random);
  for (int i = 0; i < n; ++i) {
    const double late = uniform(random) < 0.04 ? 1 + uniform(random) / 3 : 1;
    samples.push_back(median * std::exp(spread * state) * late);
    state = kCorrelation * state + std::sqrt(1 - kCorrelation * kCorrelation) * normal(random);
  }
  return samples;
}

int count(Verdict verdict, int n, double ratio, double spread) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    const auto a = times(random, n, 50, spread), b = times(random, n, 50 * ratio, spread);
    found += judge(a, b).verdict == verdict;
  }
  return found;
}

TEST(Statistics, QuartilesOfFewNumbers) {
  const double samples[] = {4, 1, 3, 2};
  const Quartiles quartiles = quartiles_of(samples);
  EXPECT_DOUBLE_EQ(quartiles.q1, 1.75);
  EXPECT_DOUBLE_EQ(quartiles.median, 2.5);
  EXPECT_DOUBLE_EQ(quartiles.q3, 3.25);
  EXPECT_EQ(quartiles.n, 4);
  EXPECT_EQ(quartiles_of({}).n, 0);
  EXPECT_EQ(quartiles_of(std::vector<double>{7}).q3, 7);
}

/// The quartiles of the exponential and of the normal distribution are known.
TEST(Statistics, QuartilesOfKnownDistributions) {
  std::mt19937_64 random(1);
  std::vector<double> exponential, normal;
  std::exponential_distribution<double> draw_exponential(0.5);
  std::normal_distribution<double> draw_normal(10, 2);
  for (int i = 0; i < 100'000; ++i) {
    exponential.push_back(draw_exponential(random));
    normal.push_back(draw_normal(random));
  }
  const Quartiles e = quartiles_of(exponential), g = quartiles_of(normal);
  EXPECT_NEAR(e.q1, 2 * std::log(4.0 / 3), 0.02);
  EXPECT_NEAR(e.median, 2 * std::log(2.0), 0.03);
  EXPECT_NEAR(e.q3, 2 * std::log(4.0), 0.05);
  EXPECT_NEAR(g.q1, 10 - 0.6745 * 2, 0.04);
  EXPECT_NEAR(g.median, 10, 0.03);
  EXPECT_NEAR(g.q3, 10 + 0.6745 * 2, 0.04);
}

TEST(Statistics, GeometricMean) {
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector<double>{1, 100}), 10);
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector<double>{8}), 8);
  EXPECT_NEAR(geometric_mean(std::vector<double>(1000, 1e300)), 1e300, 1e290) << "no overflow";
  EXPECT_EQ(geometric_mean({}), 0);
  EXPECT_EQ(geometric_mean(std::vector<double>{1, 0}), 0) << "a time of 0 must not win";
  EXPECT_EQ(geometric_mean(std::vector<double>{1, -1}), 0);
  EXPECT_EQ(geometric_mean(std::vector<double>{1, std::nan("")}), 0);
}

TEST(Judge, SaysSameOfOneDistribution) {
  EXPECT_GE(count(Verdict::kSame, 40, 1, 0.01), 98);
  EXPECT_GE(count(Verdict::kSame, 80, 1, 0.015), 98);
  EXPECT_GE(count(Verdict::kSame, 400, 1, 0.03), 98);
}

TEST(Judge, FindsThreePercent) {
  EXPECT_GE(count(Verdict::kSlower, 200, 1.03, 0.01), 98);
  EXPECT_GE(count(Verdict::kFaster, 200, 1 / 1.03, 0.01), 98);
}

/// In noise, more samples do not move the quartiles together: it stays undecided, and is never decided wrongly.
TEST(Judge, DoesNotDecideInNoise) {
  EXPECT_GE(count(Verdict::kUndecided, 2000, 1.03, 0.04), 95);
  for (const double spread : {0.01, 0.04, 0.2}) {
    for (const Verdict decided : {Verdict::kFaster, Verdict::kSlower}) EXPECT_EQ(count(decided, 40, 1, spread), 0);
  }
  EXPECT_EQ(count(Verdict::kFaster, 40, 1.03, 0.04), 0);
}

TEST(Judge, NeedsSamplesAndAClearGap) {
  const std::vector<double> one(kFewestSamples, 100.0), few(kFewestSamples - 1, 200.0);
  EXPECT_EQ(judge(one, few).verdict, Verdict::kUndecided);
  EXPECT_EQ(judge(one, few).reason, "8 and 7 samples; at least 8 of each are needed");
  EXPECT_EQ(judge(one, std::vector<double>(8, 100.4)).verdict, Verdict::kSame) << "apart, but by less than 0.5%";
  EXPECT_EQ(judge(one, std::vector<double>(8, 100.6)).verdict, Verdict::kSlower);
  EXPECT_EQ(judge(one, std::vector<double>(8, 99.4)).verdict, Verdict::kFaster);
  EXPECT_DOUBLE_EQ(judge(one, std::vector<double>(8, 125.0)).ratio, 1.25);
  EXPECT_EQ(judge({}, {}).ratio, 0);
  EXPECT_EQ(judge(std::vector<double>(8, 0.0), std::vector<double>(8, 0.0)).verdict, Verdict::kUndecided);
}

TEST(Judge, CyclesConfirm) {
  const std::vector<double> one(8, 100.0), other(8, 110.0);
  const Judgement slower = judge(one, other), same = judge(one, one);
  EXPECT_EQ(confirmed(slower, slower).verdict, Verdict::kSlower);
  EXPECT_EQ(confirmed(same, same).verdict, Verdict::kSame);
  EXPECT_EQ(confirmed(slower, same).verdict, Verdict::kUndecided);
  EXPECT_EQ(confirmed(slower, same).reason, "SLOWER in time, SAME in cycles: the clocks differed");
  EXPECT_EQ(confirmed(same, slower).verdict, Verdict::kUndecided);
}

}  // namespace
}  // namespace farwarp::results
