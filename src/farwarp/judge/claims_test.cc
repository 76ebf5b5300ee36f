// Claims of times that cannot be true, among honest ones.
#include "farwarp/judge/claims.h"

#include <gtest/gtest.h>

namespace farwarp::judge {
namespace {

const Overhead kOverhead{300, 50};
constexpr double kSlackUs = 100;
constexpr CallTime kHonest{360, 50}, kImpossible{1300, 50}, kLate{360, 0, true};

std::vector<CallTime> calls_with(std::size_t others, const CallTime& other) {
  std::vector<CallTime> calls(16, kHonest);
  std::fill_n(calls.begin() + 3, others, other);
  return calls;
}

std::string doubt_of(const std::vector<CallTime>& calls) { return doubt(calls, kOverhead, kSlackUs); }

TEST(Claims, HonestOnesPass) { EXPECT_EQ(doubt_of({{360, 50}, {1400, 600}, {500, 10}}), ""); }

TEST(Claims, AQuarterMayBeImpossibleOrLate) {
  EXPECT_EQ(doubt_of(calls_with(4, kImpossible)), "");
  EXPECT_NE(doubt_of(calls_with(5, kImpossible)).find("claims 50.00 us, and the judge waited 1000.00 us longer"),
            std::string::npos);
  EXPECT_EQ(doubt_of(calls_with(4, kLate)), "");
  EXPECT_NE(doubt_of(calls_with(5, kLate)).find("5 of 16 calls were enqueued late"), std::string::npos);
}

/// A median of claims would be small if half of them are, and a median of waits says nothing about these.
TEST(Claims, OtherCallsThatClaimTooMuchDoNotHelp) {
  std::vector<CallTime> calls(9, {5300, 1e7});
  for (std::size_t i = 0; i < 5; ++i) calls[2 * i % 9].claimed_us = 0.5;
  EXPECT_NE(doubt_of(calls), "");
}

TEST(Claims, NothingTakesNoTime) { EXPECT_NE(doubt_of({{300, 0}}), ""); }

TEST(Claims, OverheadIsMedianAndSpread) {
  const Overhead overhead = overhead_of({310, 290, 300, 500, 295});
  EXPECT_EQ(overhead.median_us, 300);
  EXPECT_EQ(overhead.spread_us, 210);
}

}  // namespace
}  // namespace farwarp::judge
