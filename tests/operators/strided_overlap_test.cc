// Tensors with pitches: those between each other's rows are apart, and a result in another's rows is refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "farwarp/harness/device_buffer.h"
#include "farwarp/ops/attention/attention.h"
#include "farwarp/ops/gemm/gemm.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::DeviceBuffer;

class StridedOverlap : public WorldTestBase {};
INSTANTIATE_TEST_SUITE_P(Targets, StridedOverlap, ::testing::ValuesIn(kAllTargets), name_of_target);

/// A token's q, k, v and out side by side.
TEST_P(StridedOverlap, AttentionOfSlicesOfOneTensor) {
  on_streams(1, options(), [](World& world, Stream stream) {
    constexpr int kTokens = 16, kHeads = 2, kDim = 64, kSlice = kHeads * kDim, kPitch = 4 * kSlice;
    AttentionDesc desc;
    desc.batch = 2;
    desc.heads = desc.kv_heads = kHeads;
    desc.head_dim = kDim;
    desc.max_queries = desc.max_keys = kTokens;
    desc.q_pitch = desc.k_pitch = desc.v_pitch = desc.out_pitch = kPitch;
    auto op = Attention::create(world, desc);
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    std::vector<std::uint16_t> numbers(static_cast<std::size_t>(desc.batch) * kTokens * kPitch, 0x3f80);  // 1
    auto memory = DeviceBuffer::create(world.device(), numbers.size() * 2);
    ASSERT_TRUE(memory.ok() && memory->upload(numbers.data(), numbers.size() * 2, stream).ok());
    std::uint16_t* const at = memory->as<std::uint16_t>();
    AttentionTensors tensors;
    tensors.q = at;
    tensors.k = at + kSlice;
    tensors.v = at + 2 * kSlice;
    tensors.out = at + 3 * kSlice;
    Status status = (*op)(tensors, stream);
    EXPECT_TRUE(status.ok()) << status.to_string();
    tensors.out = at + 3 * kSlice - 8;  // the end of v's rows
    status = (*op)(tensors, stream);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message().find("out overlaps v: it begins 240 bytes after the start of"), 0u) << status.message();
    EXPECT_TRUE(world.device().synchronize(stream, 20'000'000'000).ok());
    EXPECT_TRUE(op->close().ok());
  });
}

TEST_P(StridedOverlap, GemmBetweenRows) {
  on_streams(1, options(), [](World& world, Stream stream) {
    constexpr int kSize = 64;
    GemmDesc desc{.m = kSize, .n = kSize, .k = kSize};
    desc.x_pitch = 2 * kSize;
    desc.y_pitch = 3 * kSize;
    auto op = Gemm::create(world, desc);
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    auto memory = DeviceBuffer::create(world.device(), 16 * kSize * kSize),
         of_w = DeviceBuffer::create(world.device(), 2 * kSize * kSize);
    ASSERT_TRUE(memory.ok() && of_w.ok());
    std::uint16_t* const at = memory->as<std::uint16_t>();
    // Rows 2 kSize and 3 kSize apart meet, wherever in the gap the result begins.
    Status status = (*op)(at, of_w->get(), nullptr, at + kSize, stream);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message().find("y overlaps x: it begins 128 bytes after the start of"), 0u) << status.message();
    status = (*op)(at, of_w->get(), nullptr, at + (2 * kSize - 1) * kSize, stream);  // after x's last row
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(world.device().synchronize(stream, 20'000'000'000).ok());
    EXPECT_TRUE(op->close().ok());
  });
}

}  // namespace
}  // namespace farwarp
