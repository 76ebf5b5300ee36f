// What the plan refuses and chooses, and that parts and chunks cover the tensor.
#include "farwarp/ops/all_reduce/plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "farwarp/base/machine_shape_test.h"
#include "farwarp/ops/all_reduce/args.h"
#include "farwarp/ops/all_reduce/variants.h"

namespace farwarp {
namespace {

AllReducePlan plan_of(const AllReduceDesc& desc, int ranks = 4, const MachineShape& shape = kH200) {
  const auto plan = plan_all_reduce(desc, shape, ranks);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : AllReducePlan{};
}

TEST(AllReducePlan, RefusesByName) {
  struct Refused {
    const char* message;
    std::function<void(AllReduceDesc&)> change;
  };
  const Refused all[] = {
      {"max_elements is 0; allowed: 1 to 268435456", [](auto& desc) { desc.max_elements = 0; }},
      {"max_elements is 268435457; allowed: 1 to 268435456", [](auto& desc) { desc.max_elements = (1 << 28) + 1; }},
      {"max_elements is 4194305; allowed: 1 to 4194304 with mode one_shot",
       [](auto& desc) {
         desc.max_elements = (1 << 22) + 1, desc.dtype = DType::kF32, desc.mode = AllReduceMode::kOneShot;
       }},
      {"dtype is int32; allowed: bf16, fp16, fp32", [](auto& desc) { desc.dtype = DType::kI32; }},
      {"mode is 7; allowed: auto, one_shot, two_shot", [](auto& desc) { desc.mode = static_cast<AllReduceMode>(7); }},
      {"max_sms is -1; allowed: 0 (all) or more", [](auto& desc) { desc.max_sms = -1; }},
  };
  for (const Refused& refused : all) {
    AllReduceDesc desc{.max_elements = 1000};
    refused.change(desc);
    const auto plan = plan_all_reduce(desc, kH200, 4);
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << refused.message;
    EXPECT_NE(plan.status().message().find(std::string("AllReduceDesc.") + refused.message), std::string::npos)
        << plan.status().message();
  }
  EXPECT_FALSE(plan_all_reduce({.max_elements = 1}, kH200, 9).ok());
}

TEST(AllReducePlan, ChoosesTheFormByBytesAndRanks) {
  const auto most = [](int ranks) { return plan_of({.max_elements = 1 << 28}, ranks).one_shot_bytes; };
  EXPECT_EQ(most(1), std::int64_t{1} << 29);
  EXPECT_EQ(most(2), 4 << 20);
  EXPECT_EQ(most(3), (5 << 19) * 3 / 2);
  EXPECT_EQ(most(4), (5 << 19) * 4 / 6);
  EXPECT_EQ(most(8), (5 << 19) * 8 / 42);
  const AllReducePlan plan = plan_of({.max_elements = 1 << 28}, 8);
  EXPECT_FALSE(launch_of(plan, plan.one_shot_bytes / 2).two_shot);
  EXPECT_TRUE(launch_of(plan, plan.one_shot_bytes / 2 + 1).two_shot);
  EXPECT_TRUE(launch_of(plan_of({.max_elements = 8, .mode = AllReduceMode::kTwoShot}), 1).two_shot);
  EXPECT_FALSE(launch_of(plan_of({.max_elements = 1 << 23, .mode = AllReduceMode::kOneShot}), 1 << 23).two_shot);
}

TEST(AllReducePlan, TakesRoomForTheFormsThatItHas) {
  const AllReducePlan small = plan_of({.max_elements = 1001});
  EXPECT_EQ(small.word_bytes, 2 * 4 * 126 * 16);
  EXPECT_EQ(small.part_bytes + small.signal_bytes, 0);
  const AllReducePlan two_shot = plan_of({.max_elements = 10001, .mode = AllReduceMode::kTwoShot});
  EXPECT_EQ(two_shot.word_bytes, 0);
  EXPECT_EQ(two_shot.part_vectors, 320);  // of 1251 / 4, to a multiple of 8
  EXPECT_EQ(two_shot.part_bytes, 2 * 4 * 320 * 16);
  EXPECT_EQ(two_shot.signal_bytes, 2 * 4 * 5 * 8);  // chunks of 64
  const AllReducePlan both = plan_of({.max_elements = 1 << 25});
  EXPECT_EQ(both.one_shot_vectors, ((5 << 19) * 4 / 6 + 15) / 16);
  EXPECT_EQ(both.part_bytes, std::int64_t{4} << 25);
  const AllReducePlan alone = plan_of({.max_elements = 1 << 25}, 1);
  EXPECT_EQ(alone.word_bytes + alone.part_bytes + alone.signal_bytes, 0);
}

TEST(AllReducePlan, CoversEveryVectorOnce) {
  for (const int ranks : {2, 3, 7, 8}) {
    const AllReducePlan plan = plan_of({.max_elements = 1 << 22, .mode = AllReduceMode::kTwoShot}, ranks);
    for (const std::int64_t elements : {1, 8, 9, 1000, 16384, 100001, 1 << 22}) {
      const AllReduceLaunch call = launch_of(plan, elements);
      EXPECT_EQ(call.vectors, (elements + 7) / 8);
      EXPECT_GE(call.part_vectors * ranks, call.vectors);
      EXPECT_LE(call.part_vectors, plan.part_vectors);
      EXPECT_EQ(call.part_vectors % all_reduce::kPartAlignment, 0);
      const std::int64_t chunks = (call.part_vectors + call.chunk_vectors - 1) / call.chunk_vectors;
      EXPECT_LE(chunks, plan.part_chunks);
      const std::int64_t warps = std::int64_t{call.blocks} * (call.threads / 32 - 1);
      EXPECT_GE(call.groups, 1);
      EXPECT_LE(call.groups, ranks - 1);
      if (call.groups > 1) EXPECT_GE(warps / call.groups, chunks) << elements;
    }
  }
}

TEST(AllReducePlan, SpreadsOverMultiprocessors) {
  const AllReducePlan plan = plan_of({.max_elements = 1 << 25}, 2);
  const auto of = [&](std::int64_t bytes) { return launch_of(plan, bytes / 2); };
  EXPECT_EQ(of(8 << 10).blocks, 2);
  EXPECT_EQ(of(8 << 10).threads, 256 + 32);
  EXPECT_EQ(of(256 << 10).blocks, 64);
  EXPECT_EQ(of(1 << 20).blocks, 132);
  EXPECT_EQ(of(1 << 20).threads, 512);
  EXPECT_EQ(of(64 << 20).blocks, 132);
  EXPECT_EQ(of(64 << 20).threads, 512);
  const AllReducePlan two_shot = plan_of({.max_elements = 1 << 25, .mode = AllReduceMode::kTwoShot}, 8);
  const AllReduceLaunch small = launch_of(two_shot, 1 << 18);  // 512 KiB: 64 chunks of a part, 7 warps each
  EXPECT_EQ(small.chunk_vectors, 64);
  EXPECT_EQ(small.groups, 7);
  EXPECT_EQ(small.blocks, 132);
  EXPECT_EQ(small.threads, 4 * 32 + 32);
  const AllReduceLaunch middle = launch_of(two_shot, 1 << 23);  // 16 MiB: 1024 chunks of 128 vectors
  EXPECT_EQ(middle.chunk_vectors, 128);
  EXPECT_EQ(middle.groups, 1);
  EXPECT_EQ(middle.threads, 8 * 32 + 32);
  const AllReduceLaunch large = launch_of(two_shot, 1 << 25);  // 64 MiB: 2048 chunks for 1980 warps
  EXPECT_EQ(large.chunk_vectors, 256);
  EXPECT_EQ(large.groups, 1);
  EXPECT_EQ(large.threads, 512);
  EXPECT_EQ(launch_of(plan_of({.max_elements = 1 << 25, .max_sms = 3}, 2), 1 << 25).blocks, 3);
}

TEST(AllReducePlan, NamesAKernelOfItsOwn) {
  std::set<std::string> names;
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const int ranks : {2, 3, 8}) {
      const AllReducePlan plan = plan_of({.max_elements = 9, .dtype = dtype}, ranks);
      names.insert(plan.one_shot_kernel);
      names.insert(plan.two_shot_kernel);
    }
  }
  EXPECT_EQ(names.size(), std::size(all_reduce::kVariants));
  EXPECT_EQ(plan_of({.max_elements = 9}, 1).one_shot_kernel, "all_reduce_one_shot_bf16_2");
  EXPECT_EQ(plan_of({.max_elements = 9, .dtype = DType::kF32}, 5).two_shot_kernel, "all_reduce_two_shot_fp32_8");
}

}  // namespace
}  // namespace farwarp
