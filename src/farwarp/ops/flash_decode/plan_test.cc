// What the plan refuses and chooses, and the rule by which sequences are cut.
#include "farwarp/ops/flash_decode/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>

#include "farwarp/base/machine_shape_test.h"
#include "farwarp/ops/flash_decode/schedule.h"

namespace farwarp {
namespace {

using decode::kAllShift;
using decode::kGroupShift;
using decode::kStageKeys;
using decode::SequenceSplits;
using decode::SplitRule;

FlashDecodeDesc small_desc() {
  return {
      .batch = 4, .query_heads = 32, .kv_heads = 8, .head_dim = 128, .page_size = 16, .pages = 100, .max_pages = 20};
}

FlashDecodePlan plan_of(const FlashDecodeDesc& desc, const MachineShape& shape = kH200, int ranks = 1) {
  const auto plan = plan_flash_decode(desc, shape, ranks);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : FlashDecodePlan{};
}

TEST(FlashDecodePlan, RefusesByName) {
  struct Refused {
    const char* message;
    std::function<void(FlashDecodeDesc&)> change;
  };
  const Refused all[] = {
      {"batch is 0; allowed: 1 to 4096", [](auto& desc) { desc.batch = 0; }},
      {"query_tokens is 9; allowed: 1 to 8", [](auto& desc) { desc.query_tokens = 9; }},
      {"query_heads is 12; allowed: a multiple of kv_heads (8)", [](auto& desc) { desc.query_heads = 12; }},
      {"kv_heads is 257; allowed: 1 to 256", [](auto& desc) { desc.kv_heads = 257; }},
      {"head_dim is 136; allowed: a multiple of 8 up to 128", [](auto& desc) { desc.head_dim = 136; }},
      {"head_dim is 24; allowed: a multiple of 16 up to 128",
       [](auto& desc) { desc.head_dim = 24, desc.kv_dtype = KvDType::kFp8; }},
      {"page_size is 32; allowed: 1, 16, 64, 128", [](auto& desc) { desc.page_size = 32; }},
      {"pages is 0; allowed: 1 or more", [](auto& desc) { desc.pages = 0; }},
      {"max_pages is 0; allowed: 1 to 1048576", [](auto& desc) { desc.max_pages = 0; }},
      {"dtype is fp32; allowed: bf16, fp16", [](auto& desc) { desc.dtype = DType::kF32; }},
      {"window is -1", [](auto& desc) { desc.window = -1; }},
      {"scale is -1; allowed: 0 (head_dim^-0.5) or up to 2e+38", [](auto& desc) { desc.scale = -1; }},
      {"kv_shards is 2; allowed: 1, or 4, the World's size", [](auto& desc) { desc.kv_shards = 2; }},
      {"query_tokens is 2; allowed: 1 with kv_shards > 1",
       [](auto& desc) { desc.kv_shards = 4, desc.query_tokens = 2; }},
      {"window is 5; allowed: 0 with kv_shards > 1", [](auto& desc) { desc.kv_shards = 4, desc.window = 5; }},
      {"split_keys is 100; allowed: 0 (by length) or a multiple of 64", [](auto& desc) { desc.split_keys = 100; }},
      {"split_keys is 64; allowed: 0, or a multiple of 64 that cuts 32000 keys into 256 splits at most",
       [](auto& desc) { desc.split_keys = 64, desc.max_pages = 2000; }},
      {"work is 9; allowed: best, split, group, all", [](auto& desc) { desc.work = static_cast<DecodeWork>(9); }},
      {"work is group; allowed: best, split; group and all on Hopper, if an item has at most 16 rows",
       [](auto& desc) { desc.work = DecodeWork::kGroup, desc.query_heads = 136; }},
      {"max_sms is -1", [](auto& desc) { desc.max_sms = -1; }},
      {"batch is 4096; allowed: so many that partial outputs take",
       [](auto& desc) { desc.batch = 4096, desc.kv_heads = 256, desc.query_heads = 4096, desc.max_pages = 2000; }},
  };
  for (const Refused& refused : all) {
    FlashDecodeDesc desc = small_desc();
    refused.change(desc);
    const auto plan = plan_flash_decode(desc, kH200, 4);
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << refused.message;
    EXPECT_NE(plan.status().message().find(std::string("FlashDecodeDesc.") + refused.message), std::string::npos)
        << plan.status().message();
  }
}

TEST(FlashDecodePlan, ChoosesTheKernel) {
  const auto kernel = [](const MachineShape& shape, DType dtype, KvDType kv_dtype, int head_dim, int page_size) {
    FlashDecodeDesc desc = small_desc();
    desc.dtype = dtype;
    desc.kv_dtype = kv_dtype;
    desc.head_dim = head_dim;
    desc.page_size = page_size;
    return plan_of(desc, shape).kernel;
  };
  EXPECT_EQ(kernel(kH200, DType::kBf16, KvDType::kSame, 128, 16), "flash_decode_bf16_128x8");
  EXPECT_EQ(kernel(kH200, DType::kF16, KvDType::kSame, 64, 64), "flash_decode_fp16_64x8");
  EXPECT_EQ(kernel(kH200, DType::kBf16, KvDType::kSame, 72, 1), "flash_decode_bf16_rows_128x8");
  EXPECT_EQ(kernel(kH200, DType::kBf16, KvDType::kFp8, 128, 128), "flash_decode_bf16_fp8_128x8");
  EXPECT_EQ(kernel(kH200, DType::kF16, KvDType::kFp8, 16, 1), "flash_decode_fp16_fp8_rows_64x8");
  EXPECT_EQ(kernel(kMi300x, DType::kBf16, KvDType::kSame, 128, 1), "flash_decode_mfma_bf16_128");
  EXPECT_EQ(kernel(kMi300x, DType::kF16, KvDType::kFp8, 64, 16), "flash_decode_mfma_fp16_fp8_64");
}

// The kernel with the fewest columns that has one for each row.
TEST(FlashDecodePlan, RowsChooseTheKernel) {
  for (const auto& [heads, tokens, name] : {std::tuple(64, 1, "128x8"),
                                            {72, 1, "128x16"},
                                            {128, 1, "128x16"},
                                            {32, 4, "128x16"},
                                            {136, 1, "128x64"},
                                            {512, 2, "128x64"}}) {
    FlashDecodeDesc desc = small_desc();
    desc.query_heads = heads;
    desc.query_tokens = tokens;
    EXPECT_EQ(plan_of(desc).kernel, std::string("flash_decode_bf16_") + name) << heads << " " << tokens;
  }
}

TEST(FlashDecodePlan, RowsAreQueryTokensTimesTheGroup) {
  FlashDecodeDesc desc = small_desc();
  desc.query_tokens = 8;
  desc.query_heads = 80;
  const FlashDecodePlan wide = plan_of(desc), waves = plan_of(desc, kMi300x);
  EXPECT_EQ(wide.rows, 80);
  EXPECT_EQ(wide.row_blocks, 2);
  EXPECT_EQ(wide.item_rows, 64);
  EXPECT_EQ(wide.items, 4 * 8 * 2);
  EXPECT_EQ(waves.row_blocks, 5);
}

// A long sequence keeps a large machine busy; the machine at hand does not matter.
TEST(FlashDecodePlan, SplitsDependOnHeadsAlone) {
  for (const auto& [kv_heads, splits] : {std::pair(1, 64), {4, 32}, {8, 16}, {12, 10}, {32, 4}, {96, 4}}) {
    FlashDecodeDesc desc = small_desc();
    desc.kv_heads = kv_heads;
    desc.query_heads = 2 * kv_heads;
    desc.max_pages = 4096;
    MachineShape few = kH200;
    few.multiprocessors = 3;
    EXPECT_EQ(plan_of(desc).target_splits, splits) << kv_heads;
    EXPECT_EQ(plan_of(desc, few).target_splits, splits) << kv_heads;
    desc.batch = 1;
    EXPECT_EQ(plan_of(desc).target_splits, splits) << kv_heads;
  }
}

// The faster works on a machine of 132 multiprocessors (MEASURED.md, "Works"), but for the first shape, where a group
// would be faster. How wide the block table is does not matter.
TEST(FlashDecodePlan, WorksFollowABlocksShareOfTheKeys) {
  for (const auto& [batch, keys, kv_heads, shift] : {std::tuple(8, 16384, 12, kAllShift),
                                                     {8, 4096, 12, kAllShift},
                                                     {8, 1024, 12, kAllShift},
                                                     {1, 65536, 12, kGroupShift},
                                                     {1, 16384, 12, kGroupShift},
                                                     {1, 4096, 12, 0},
                                                     {1, 1024, 12, 0},
                                                     {1, 32768, 8, kGroupShift},
                                                     {1, 8192, 8, 0},
                                                     {32, 4096, 8, kAllShift},
                                                     {8, 8192, 8, kGroupShift}}) {
    for (const int wider : {1, 4}) {
      FlashDecodeDesc desc = small_desc();
      desc.batch = batch;
      desc.kv_heads = kv_heads;
      desc.query_heads = 4 * kv_heads;
      desc.max_pages = wider * keys / desc.page_size;
      MachineShape shape = kH200;
      shape.multiprocessors = 132;
      const FlashDecodePlan plan = plan_of(desc, shape);
      const SequenceSplits of = SplitRule{1, 0, Divisor(plan.target_splits), 0}.of(keys);
      EXPECT_EQ(of.work_shift(plan.share_factor * static_cast<float>(batch * keys)), shift)
          << batch << " x " << keys << ", " << kv_heads << " KV heads, table " << wider;
    }
  }
}

TEST(FlashDecodePlan, ManyRowsGoToOwners) {
  FlashDecodeDesc desc = small_desc();
  desc.kv_shards = 8;
  desc.batch = 1;
  EXPECT_EQ(plan_of(desc, kH200, 8).desc.exchange, DecodeExchange::kOneShot);
  desc.batch = 16;
  const FlashDecodePlan plan = plan_of(desc, kH200, 8);
  EXPECT_EQ(plan.desc.exchange, DecodeExchange::kTwoShot);
  const int rows = 16 * 32;
  EXPECT_EQ(plan.finished, 2 * 8 * (rows / 8) * 33 * 16);
  EXPECT_EQ(plan.inbox_bytes, plan.finished + 2 * rows * 33 * 8);
  EXPECT_EQ(plan_of(small_desc()).inbox_bytes, 0);
}

// Splits cover the stages that some token needs, each once; there are never more than the workspace has room for.
TEST(SplitRule, CoversWhatIsSeen) {
  for (const int tokens : {1, 3, 8}) {
    for (const int window : {0, 1, 63, 64, 65, 200, 5000}) {
      for (const int fixed : {0, 64, 192}) {
        FlashDecodeDesc desc = small_desc();
        desc.query_tokens = tokens;
        desc.window = window;
        desc.split_keys = fixed;
        desc.max_pages = 250;
        const FlashDecodePlan plan = plan_of(desc);
        const SplitRule rule{tokens, window, Divisor(plan.target_splits), fixed / kStageKeys};
        for (int length = 0; length <= 4000; ++length) {
          const SequenceSplits of = rule.of(length);
          ASSERT_GE(of.splits, 1);
          ASSERT_LE(of.splits, plan.most_splits) << tokens << " " << window << " " << fixed << " " << length;
          ASSERT_GE(of.splits * of.chunk, of.stages);
          ASSERT_TRUE(of.stages == 0 || (of.splits - 1) * of.chunk < of.stages);
          const int oldest = window > 0 ? std::max(0, length - tokens + 1 - window) : 0;
          ASSERT_LE(of.first * kStageKeys, oldest);
          ASSERT_GT((of.first + 1) * kStageKeys, oldest);
          ASSERT_GE((of.first + of.stages) * kStageKeys, length);
          ASSERT_LT((of.first + of.stages - 1) * kStageKeys, std::max(length, 1));
        }
      }
    }
  }
}

}  // namespace
}  // namespace farwarp
