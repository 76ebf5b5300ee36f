// The all-reduce's API as a user calls it, on both emulated targets.
#include "farwarp/ops/all_reduce/all_reduce.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "farwarp/harness/device_buffer.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::DeviceBuffer;

class AllReduceApi : public WorldTestBase {
 protected:
  static void on_ranks(int ranks, const std::function<void(World&, Stream)>& body) {
    WorldOptions changed = options();
    changed.heap_bytes = std::size_t{64} << 20;
    on_streams(ranks, changed, body);
  }
  static AllReduce created(World& world, const AllReduceDesc& desc) {
    auto op = AllReduce::create(world, desc);
    EXPECT_TRUE(op.ok()) << op.status().to_string();
    return std::move(*op);
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, AllReduceApi, ::testing::ValuesIn(kAllTargets), name_of_target);

/// One instance, sizes of both forms in turn, and none at all.
TEST_P(AllReduceApi, CallsOfAnySize) {
  on_ranks(4, [](World& world, Stream stream) {
    constexpr std::int64_t kMost = 600'000;
    AllReduce op = created(world, {.max_elements = kMost, .dtype = DType::kF32});
    ASSERT_TRUE(op.plan().word_bytes > 0 && op.plan().part_bytes > 0);
    auto memory = DeviceBuffer::create(world.device(), kMost * 4);
    ASSERT_TRUE(memory.ok());
    for (const std::int64_t elements : {kMost, std::int64_t{1}, std::int64_t{0}, kMost - 1, std::int64_t{77}}) {
      std::vector<float> values(static_cast<std::size_t>(elements), static_cast<float>(world.rank() + 1));
      ASSERT_TRUE(memory->upload(values.data(), values.size() * 4, stream).ok());
      const Status status = op(memory->get(), memory->get(), elements, stream);
      ASSERT_TRUE(status.ok()) << status.to_string();
      ASSERT_TRUE(memory->download(values.data(), values.size() * 4, stream).ok());
      ASSERT_TRUE(world.status().ok()) << world.status().to_string();
      for (const float value : values) ASSERT_EQ(value, 10) << elements;
    }
    EXPECT_TRUE(op.close().ok());
  });
}

TEST_P(AllReduceApi, RefusesWhatIsWrong) {
  on_ranks(2, [](World& world, Stream stream) {
    EXPECT_EQ(AllReduce::create(world, {.max_elements = 0}).status().code(), StatusCode::kInvalidArgument);
    AllReduce op = created(world, {.max_elements = 64});
    auto memory = DeviceBuffer::create(world.device(), 512);
    ASSERT_TRUE(memory.ok());
    std::byte* const at = memory->as<std::byte>();
    const auto refusal = [&](const void* in, void* out, std::int64_t elements) {
      const Status status = op(in, out, elements, stream);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      return status.message();
    };
    EXPECT_EQ(refusal(at, at, 65), "elements is 65; allowed: 0 to 64, AllReduceDesc.max_elements");
    EXPECT_EQ(refusal(at, at, -1), "elements is -1; allowed: 0 to 64, AllReduceDesc.max_elements");
    EXPECT_NE(refusal(nullptr, at, 64).find("x is null"), std::string::npos) << refusal(nullptr, at, 64);
    EXPECT_NE(refusal(at, at + 8, 64).find("out"), std::string::npos);
    EXPECT_NE(refusal(at, at + 112, 64).find("out begins 112 bytes from x; allowed: 0 (in place), or 128"),
              std::string::npos)
        << refusal(at, at + 112, 64);
    EXPECT_NE(refusal(at + 112, at, 64).find("out begins 112 bytes"), std::string::npos);
    EXPECT_TRUE(op(at, at + 128, 64, stream).ok());
    EXPECT_TRUE(world.device().synchronize(stream, 10'000'000'000).ok());
    EXPECT_TRUE(op.close().ok());
  });
}

/// A rank that expects more than a peer sends is told, not left waiting.
TEST_P(AllReduceApi, DifferentNumbersOfElementsEndAtTheDeadline) {
  for (const AllReduceMode mode : {AllReduceMode::kOneShot, AllReduceMode::kTwoShot}) {
    on_ranks(2, [mode](World& world, Stream stream) {
      AllReduce op = created(world, {.max_elements = 20'000, .mode = mode});
      auto memory = DeviceBuffer::create(world.device(), 40'000);
      ASSERT_TRUE(memory.ok());
      const std::int64_t elements = world.rank() == 0 ? 20'000 : 8;
      ASSERT_TRUE(op(memory->get(), memory->get(), elements, stream).ok());
      (void)world.device().synchronize(stream, 60'000'000'000);
      // Rank 1 may have ended before rank 0 gave up.
      if (world.rank() == 0) {
        EXPECT_EQ(world.status().code(), StatusCode::kDeadline) << world.status().to_string();
        EXPECT_NE(world.status().message().find("for rank 1"), std::string::npos) << world.status().message();
      }
      ASSERT_TRUE(world.recover({stream}).ok());
      for (int again = 0; again < 3; ++again) {
        std::vector<std::uint16_t> ones(20'000, bf16_from(1).bits);
        ASSERT_TRUE(memory->upload(ones.data(), 40'000, stream).ok());
        ASSERT_TRUE(op(memory->get(), memory->get(), 20'000, stream).ok());
        ASSERT_TRUE(memory->download(ones.data(), 40'000, stream).ok());
        ASSERT_TRUE(world.status().ok()) << world.status().to_string();
        for (const std::uint16_t one : ones) ASSERT_EQ(one, bf16_from(2).bits);
      }
      EXPECT_TRUE(op.close().ok());
    });
  }
}

/// Epochs wrap while words and signals are in use.
TEST_P(AllReduceApi, EpochsWrap) {
  farwarp::testing::set_first_epoch(0xfffffffcu);
  on_ranks(2, [](World& world, Stream stream) {
    AllReduce op = created(world, {.max_elements = 4000, .dtype = DType::kF32, .mode = AllReduceMode::kAuto});
    AllReduce parts = created(world, {.max_elements = 4000, .dtype = DType::kF32, .mode = AllReduceMode::kTwoShot});
    auto memory = DeviceBuffer::create(world.device(), 16'000);
    ASSERT_TRUE(memory.ok());
    for (int call = 0; call < 8; ++call) {
      for (AllReduce* each : {&op, &parts}) {
        std::vector<float> values(4000, static_cast<float>(call + world.rank()));
        ASSERT_TRUE(memory->upload(values.data(), 16'000, stream).ok());
        ASSERT_TRUE((*each)(memory->get(), memory->get(), 4000, stream).ok());
        ASSERT_TRUE(memory->download(values.data(), 16'000, stream).ok());
        ASSERT_TRUE(world.status().ok()) << world.status().to_string();
        for (const float value : values) ASSERT_EQ(value, static_cast<float>(2 * call + 1));
      }
    }
    EXPECT_TRUE(op.close().ok());
    EXPECT_TRUE(parts.close().ok());
  });
  farwarp::testing::set_first_epoch(2);
}

}  // namespace
}  // namespace farwarp
