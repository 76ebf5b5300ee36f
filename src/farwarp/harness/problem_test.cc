#include "farwarp/harness/problem.h"

#include <gtest/gtest.h>

namespace farwarp::harness {
namespace {

OperatorInfo spread_op() {
  OperatorInfo op;
  op.name = "op";
  op.params = {{"whole", "64", ""}, {"each", "6", ""}, {"other", "5", ""}};
  op.spread = [](const Params&) { return Spread{.of_all = {"whole"}, .of_each = {"each"}}; };
  return op;
}

TEST(Problem, TheWholeKeepsWhatAllRanksHaveTogether) {
  const auto params = params_on_ranks(spread_op(), {{"whole", "48"}, {"each", "12"}}, Problem::kWhole, 8, 2);
  ASSERT_TRUE(params.ok());
  EXPECT_EQ(*params, (Params{{"whole", "48"}, {"each", "48"}}));
}

TEST(Problem, TheShareKeepsWhatEachRankHas) {
  const auto params = params_on_ranks(spread_op(), {{"whole", "48"}, {"each", "12"}}, Problem::kShare, 8, 2);
  ASSERT_TRUE(params.ok());
  EXPECT_EQ(*params, (Params{{"whole", "12"}, {"each", "12"}}));
}

TEST(Problem, DefaultsAreScaledToo) {
  const auto params = params_on_ranks(spread_op(), {}, Problem::kWhole, 8, 4);
  ASSERT_TRUE(params.ok());
  EXPECT_EQ(*params, (Params{{"each", "12"}}));
}

TEST(Problem, OnTheSuitesRanksAndWithoutSpreadNothingChanges) {
  const Params given = {{"whole", "48"}, {"each", "12"}};
  OperatorInfo plain = spread_op();
  plain.spread = nullptr;
  for (const Problem problem : {Problem::kWhole, Problem::kShare}) {
    EXPECT_EQ(*params_on_ranks(spread_op(), given, problem, 8, 8), given);
    EXPECT_EQ(*params_on_ranks(plain, given, problem, 8, 2), given);
  }
}

TEST(Problem, WhatCannotBeDividedIsRefusedWithTheRanksThatAreAllowed) {
  const auto whole = params_on_ranks(spread_op(), {{"each", "2"}}, Problem::kWhole, 8, 3);
  EXPECT_EQ(whole.status().message(),
            "--ranks is '3': allowed with --problem whole and each=2 of 8 ranks are 1, 2, 4, 8");
  const auto share = params_on_ranks(spread_op(), {{"whole", "4"}}, Problem::kShare, 8, 1);
  EXPECT_EQ(share.status().message(),
            "--ranks is '1': allowed with --problem share and whole=4 of 8 ranks are 2, 4, 6, 8");
  const auto odd = params_on_ranks(spread_op(), {{"whole", "many"}}, Problem::kShare, 8, 1);
  EXPECT_EQ(odd.status().message(), "parameter whole is 'many': allowed is an integer in 0..2147483647");
}

TEST(Problem, NamesAreParsed) {
  EXPECT_EQ(*parse_problem("whole"), Problem::kWhole);
  EXPECT_EQ(*parse_problem("share"), Problem::kShare);
  EXPECT_EQ(parse_problem("half").status().message(), "--problem is 'half': allowed is whole|share");
}

}  // namespace
}  // namespace farwarp::harness
