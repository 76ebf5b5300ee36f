// Claims of times that cannot be true, one among honest ones.
#include "farwarp/judge/claims.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace farwarp::judge {
namespace {

constexpr double kOverheadUs = 300, kSlackUs = 200;

TEST(Claims, HonestOnesPass) {
  EXPECT_EQ(impossible_claim({{360, 50}, {1400, 1000}, {500, 10}}, kOverheadUs, kSlackUs), "");
}

/// However many others claim too much: the reported median may be of the ones that claim too little.
TEST(Claims, EachIsHeldAgainstTheClock) {
  for (const std::size_t n : {1u, 3u, 9u, 40u}) {
    for (std::size_t low = 0; low < n; ++low) {
      std::vector<CallTime> calls(n, {5300, 1e7});
      calls[low].claimed_us = 0.5;
      EXPECT_NE(impossible_claim(calls, kOverheadUs, kSlackUs).find("claims 0.50 us"), std::string::npos);
    }
  }
}

TEST(Claims, NothingTakesNoTime) { EXPECT_NE(impossible_claim({{300, 0}}, kOverheadUs, kSlackUs), ""); }

}  // namespace
}  // namespace farwarp::judge
