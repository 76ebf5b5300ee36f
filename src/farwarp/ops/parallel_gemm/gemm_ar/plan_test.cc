// Which form the plan chooses, and what the heap holds for it.
#include "farwarp/ops/parallel_gemm/gemm_ar/plan.h"

#include <gtest/gtest.h>

#include "farwarp/base/machine_shape_test.h"

namespace farwarp {
namespace {

using enum ParallelGemmExchange;

GemmAllReducePlan plan_of(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  const auto plan = plan_gemm_all_reduce(desc, shape, ranks);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : GemmAllReducePlan{};
}

TEST(GemmAllReducePlan, FewestRowsGoToAllRanks) {
  for (const MachineShape& shape : {kH200, kMi300x}) {
    for (const int m : {1, 8, 16}) {
      const GemmAllReducePlan plan = plan_of({.m = m, .n = 4096, .k = 4096}, shape, 8);
      EXPECT_TRUE(plan.one_shot()) << m;
      EXPECT_EQ(plan.reduce.word_inbox.rows, m);
      EXPECT_EQ(plan.word_bytes(), std::int64_t{2} * 8 * m * 4096 * 2);
    }
  }
  EXPECT_EQ(plan_of({.m = 9, .n = 4096, .k = 4096}, kH200, 8).kernel, "gemm_ar_one_shot_words_bf16_swap_ab_16");
}

TEST(GemmAllReducePlan, MoreRowsGoToAllWhereTheirBytesCostLittle) {
  const auto is_one_shot = [](int m, int ranks) {
    return plan_of({.m = m, .n = 4096, .k = 4096}, kH200, ranks).one_shot();
  };
  EXPECT_FALSE(is_one_shot(32, 8));
  EXPECT_TRUE(is_one_shot(32, 4));
  EXPECT_FALSE(is_one_shot(64, 4));
  EXPECT_TRUE(is_one_shot(64, 2));
  EXPECT_FALSE(is_one_shot(65, 2)) << "no kernel";
}

TEST(GemmAllReducePlan, OwnersHandOutWordsWhereTheySendWords) {
  const GemmAllReducePlan few = plan_of({.m = 33, .n = 4096, .k = 4096}, kH200, 8);
  EXPECT_EQ(few.kernel, "gemm_ar_words_bf16_swap_ab_64");
  EXPECT_EQ(few.finished_inbox.rows, 5) << "of 40, padded to a multiple of the ranks";
  EXPECT_EQ(few.finished_inbox.at, few.reduce.word_inbox.bytes()) << "after the partial sums";
  EXPECT_EQ(few.word_bytes(), 2 * few.finished_inbox.bytes());
  EXPECT_FALSE(few.one_shot());
  EXPECT_TRUE(plan_of({.m = 2048, .n = 6144, .k = 4096}, kH200, 8).by_words());
  const GemmAllReducePlan most = plan_of({.m = 4096, .n = 4096, .k = 4096}, kH200, 8);
  EXPECT_FALSE(most.by_words()) << "more than kMaxOwnedAsWords";
  EXPECT_EQ(most.word_bytes(), 0);
  EXPECT_GT(most.signals, most.finished_rows);
  EXPECT_FALSE(plan_of({.m = 33, .n = 4096, .k = 4096}, kMi300x, 8).by_words()) << "CDNA goes by boxes and flags";
}

TEST(GemmAllReducePlan, TheExchangeCanBeAskedFor) {
  const auto kernel = [](int m, ParallelGemmExchange exchange) {
    return plan_of({.m = m, .n = 4096, .k = 4096, .exchange = exchange}, kH200, 8).kernel;
  };
  EXPECT_EQ(kernel(9, kBoxes), "gemm_ar_bf16_swap_ab_16");
  EXPECT_EQ(kernel(9, kWords), "gemm_ar_words_bf16_swap_ab_16");
  EXPECT_EQ(kernel(33, kOneShotWords), "gemm_ar_one_shot_words_bf16_swap_ab_64");
  EXPECT_TRUE(plan_of({.m = 4096, .n = 4096, .k = 4096, .exchange = kWords}, kH200, 8).by_words());
  const auto error = [](int m, ParallelGemmExchange exchange, const MachineShape& shape) {
    return plan_gemm_all_reduce({.m = m, .n = 72, .k = 64, .exchange = exchange}, shape, 8).status().message();
  };
  EXPECT_EQ(
      error(65, kOneShotWords, kH200),
      "ParallelGemmDesc.exchange is one_shot_words; allowed: auto, boxes or words where m, padded to a multiple of "
      "the ranks, is more than 64");
  EXPECT_EQ(error(40, kWords, kMi300x), "ParallelGemmDesc.exchange is words; allowed: auto here");
  EXPECT_EQ(error(8, kOneShotWords, kMi300x), "ParallelGemmDesc.exchange is one_shot_words; allowed: auto here");
  EXPECT_EQ(error(8, kBoxes, kMi300x), "ParallelGemmDesc.exchange is boxes; allowed: auto here");
}

// With few rows much of the time is sending, which splits share.
TEST(GemmAllReducePlan, SplitsOfFewRows) {
  const auto splits = [](int m, int n) { return plan_of({.m = m, .n = n, .k = 1024}, kH200, 2).reduce.splits; };
  EXPECT_EQ(splits(32, 4096), 2);
  EXPECT_EQ(splits(64, 4096), 2);
  EXPECT_EQ(splits(8, 2048), 4);
  EXPECT_EQ(splits(64, 9216), 1) << "72 tiles: no room for two of each";
}

TEST(GemmAllReducePlan, SaysInWords) {
  const auto form = [](int m) { return plan_of({.m = m, .n = 4096, .k = 4096}, kH200, 8).to_string(); };
  EXPECT_NE(form(8).find("exchange words, one-shot"), std::string::npos) << form(8);
  EXPECT_NE(form(64).find("exchange words, two-shot"), std::string::npos) << form(64);
  EXPECT_NE(form(4096).find("exchange boxes, two-shot"), std::string::npos) << form(4096);
}

}  // namespace
}  // namespace farwarp
