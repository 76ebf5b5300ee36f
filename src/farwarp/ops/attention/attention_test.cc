// attention on the emulator against the float64 reference: masks, sizes that divide nothing, ragged and paged
// sequences, bad input.
#include "farwarp/ops/attention/attention_run_test.h"

namespace farwarp {
namespace {

class AttentionTest : public testing::TestWithParam<TargetKind> {
 protected:
  static void expect_right(const Shape& shape) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      AttentionRun run(shape, GetParam(), seed);
      const Status status =
          run_ranks(1, [&](const std::shared_ptr<Bootstrap>& bootstrap) { return run.run(bootstrap); });
      ASSERT_TRUE(status.ok()) << status.to_string() << ", seed " << seed;
      ASSERT_EQ(run.difference(), "") << "seed " << seed;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, AttentionTest, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& target) { return std::string(name_of(target.param)); });

AttentionDesc desc_of(int batch, int heads, int kv_heads, int head_dim, int queries, int keys) {
  AttentionDesc desc;
  desc.batch = batch;
  desc.heads = heads;
  desc.kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.max_queries = queries;
  desc.max_keys = keys;
  desc.has_lse = true;
  return desc;
}

TEST_P(AttentionTest, OneQueryOneKey) { expect_right({desc_of(1, 1, 1, 64, 1, 1)}); }
TEST_P(AttentionTest, SeveralSteps) { expect_right({desc_of(1, 2, 1, 128, 130, 400)}); }
// Kernels that CDNA does not have.
TEST(AttentionOnHopper, WideHeadsAndSoftcaps) {
  AttentionDesc wide = desc_of(2, 2, 1, 256, 130, 300);
  wide.causal = true;
  AttentionDesc padded = desc_of(1, 2, 1, 200, 70, 200);
  padded.dtype = DType::kF16;
  padded.softcap = 2;
  AttentionDesc capped = desc_of(1, 2, 2, 72, 140, 400);
  capped.softcap = 0.5f;
  capped.window_left = 150;
  capped.has_sinks = true;
  for (const AttentionDesc& desc : {wide, padded, capped}) {
    AttentionRun run({desc, {}, {}, 3}, TargetKind::kEmuSm90);
    const Status status = run_ranks(1, [&](const std::shared_ptr<Bootstrap>& bootstrap) { return run.run(bootstrap); });
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(run.difference(), "");
  }
}
TEST_P(AttentionTest, Fp16AndMoreWorksThanBlocks) {
  AttentionDesc desc = desc_of(3, 5, 1, 80, 63, 65);
  desc.dtype = DType::kF16;
  expect_right({desc});
}
TEST_P(AttentionTest, CausalWithFewerQueriesThanKeys) {
  AttentionDesc desc = desc_of(1, 2, 2, 64, 200, 333);
  desc.causal = true;
  expect_right({desc});
}
TEST_P(AttentionTest, CausalWithMoreQueriesThanKeys) {
  AttentionDesc desc = desc_of(1, 1, 1, 56, 260, 65);
  desc.causal = true;
  expect_right({desc});
}
TEST_P(AttentionTest, SlidingWindowWithSinks) {
  AttentionDesc desc = desc_of(1, 3, 3, 72, 300, 300);
  desc.causal = true;
  desc.window_left = 70;
  desc.has_sinks = true;
  expect_right({desc});
}
TEST_P(AttentionTest, WindowOnBothSides) {
  AttentionDesc desc = desc_of(1, 1, 1, 64, 280, 310);
  desc.window_left = 30;
  desc.window_right = 10;
  expect_right({desc});
}
TEST_P(AttentionTest, LargeLogits) {
  Shape shape{desc_of(1, 1, 1, 128, 40, 200)};
  shape.deviation = 1000;
  expect_right(shape);
}
TEST_P(AttentionTest, RaggedWithEmptySequences) {
  Shape shape{desc_of(4, 2, 1, 64, 150, 140)};
  shape.queries = {150, 0, 7, 65};
  shape.keys = {140, 30, 0, 131};
  shape.desc.ragged_queries = shape.desc.ragged_keys = true;
  shape.desc.total_queries = 222;
  shape.desc.total_keys = 301;
  shape.desc.causal = true;
  expect_right(shape);
}
TEST_P(AttentionTest, PaddedKeys) {
  Shape shape{desc_of(2, 1, 1, 128, 20, 300)};
  shape.keys = {299, 17};
  shape.desc.has_key_counts = true;
  expect_right(shape);
}
TEST_P(AttentionTest, PagesOf16) {
  Shape shape{desc_of(2, 2, 1, 64, 33, 300)};
  shape.keys = {281, 40};
  shape.desc.page_size = 16;
  shape.desc.pages = 32;
  shape.desc.causal = true;
  expect_right(shape);
}
TEST_P(AttentionTest, SeveralStepsOfSmallHeadsAndTwoQueryBlocks) { expect_right({desc_of(1, 1, 1, 64, 270, 700)}); }
TEST_P(AttentionTest, LongPagedWindow) {
  Shape shape{desc_of(1, 1, 1, 104, 290, 900)};
  shape.keys = {890};
  shape.desc.page_size = 32;
  shape.desc.pages = 40;
  shape.desc.causal = true;
  shape.desc.window_left = 500;
  expect_right(shape);
}
TEST_P(AttentionTest, ANanInAQueryStaysInItsResults) {
  for (const int head_dim : {64, 128}) {
    AttentionRun run({desc_of(1, 2, 1, head_dim, 40, 300)}, GetParam());
    run.nan_query = 17;
    const Status status = run_ranks(1, [&](const std::shared_ptr<Bootstrap>& bootstrap) { return run.run(bootstrap); });
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(run.difference(), "");
  }
}
TEST_P(AttentionTest, PagesOf256) {
  Shape shape{desc_of(1, 1, 1, 128, 33, 500)};
  shape.keys = {450};
  shape.desc.page_size = 256;
  shape.desc.pages = 3;
  expect_right(shape);
}

// A NaN makes its row look for a base in every step.
TEST_P(AttentionTest, ARowsBitsDoNotDependOnOtherRows) {
  const Shape shape{desc_of(1, 2, 1, 64, 40, 600)};
  AttentionRun whole(shape, GetParam()), with_nan(shape, GetParam());
  with_nan.nan_query = 17;
  for (AttentionRun* run : {&whole, &with_nan}) {
    const Status status =
        run_ranks(1, [&](const std::shared_ptr<Bootstrap>& bootstrap) { return run->run(bootstrap); });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_TRUE(whole.equals(with_nan, 17));
  EXPECT_FALSE(whole.equals(with_nan, 16));
}

TEST_P(AttentionTest, AWrongPageIsReported) {
  Shape shape{desc_of(1, 1, 1, 64, 8, 64)};
  shape.keys = {64};
  shape.desc.page_size = 16;
  shape.desc.pages = 4;
  AttentionRun run(shape, GetParam());
  run.second_page = 4;
  const Status status = run_ranks(1, [&](const std::shared_ptr<Bootstrap>& bootstrap) { return run.run(bootstrap); });
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_NE(status.message().find("'block_table': found 4, allowed is at most 3"), std::string::npos)
      << status.message();
}

TEST_P(AttentionTest, ACountOfKeysBeyondTheTensorIsReported) {
  Shape shape{desc_of(1, 1, 1, 64, 8, 64)};
  shape.keys = {65};
  shape.desc.has_key_counts = true;
  AttentionRun run(shape, GetParam());
  const Status status = run_ranks(1, [&](const std::shared_ptr<Bootstrap>& bootstrap) { return run.run(bootstrap); });
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_NE(status.message().find("'key_counts': found 65, allowed is at most 64"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace farwarp
