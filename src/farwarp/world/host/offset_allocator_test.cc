#include "farwarp/world/host/offset_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace farwarp {
namespace {

TEST(OffsetAllocator, TakesTheFirstPlaceThatFits) {
  OffsetAllocator heap(1000);
  EXPECT_EQ(heap.allocate(100, 1).value(), 0u);
  EXPECT_EQ(heap.allocate(100, 64).value(), 128u);
  EXPECT_EQ(heap.allocate(28, 4).value(), 100u);  // the gap that alignment left
  ASSERT_TRUE(heap.free(0, 100).ok());
  EXPECT_EQ(heap.allocate(101, 1).value(), 228u);
  EXPECT_EQ(heap.allocate(100, 1).value(), 0u);
}

TEST(OffsetAllocator, SaysWhatIsLeft) {
  OffsetAllocator heap(1024);
  heap.reserve_front(256);
  const auto buffer = heap.allocate(512, 256);
  ASSERT_TRUE(buffer.ok());
  auto refused = heap.allocate(257, 1);
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("256 of 1024 bytes are free"), std::string::npos)
      << refused.status().message();
  EXPECT_EQ(heap.allocate(256, 256).value(), 768u);
  EXPECT_EQ(heap.free_bytes(), 0u);
  EXPECT_EQ(heap.allocate(std::size_t{0} - 1, 1).status().code(), StatusCode::kOutOfMemory);
}

TEST(OffsetAllocator, ChecksItsArguments) {
  OffsetAllocator heap(1024);
  EXPECT_EQ(heap.allocate(0, 1).status().message(), "bytes is 0; allowed: 1 or more");
  EXPECT_EQ(heap.allocate(1, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(heap.allocate(1, 3).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(heap.allocate(1, std::size_t{1} << 63).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(heap.allocate(10, 1).ok());
  EXPECT_EQ(heap.free(0, 9).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(heap.free(1, 10).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(heap.free(0, 10).ok());
  EXPECT_EQ(heap.free(0, 10).code(), StatusCode::kInvalidArgument) << "twice";
}

// Against a byte map.
TEST(OffsetAllocator, NeverOverlapsAndAlwaysComesBackWhole) {
  std::mt19937 random(7);
  OffsetAllocator heap(4096);
  std::vector<bool> used(4096);
  struct Piece {
    std::size_t offset, bytes;
  };
  std::vector<Piece> pieces;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0) {
      const std::size_t bytes = 1 + random() % 300;
      const std::size_t alignment = std::size_t{1} << random() % 9;
      auto offset = heap.allocate(bytes, alignment);
      if (!offset.ok()) continue;
      ASSERT_EQ(*offset % alignment, 0u);
      for (std::size_t i = *offset; i < *offset + bytes; ++i) {
        ASSERT_FALSE(used.at(i));
        used[i] = true;
      }
      pieces.push_back({*offset, bytes});
    } else if (!pieces.empty()) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      const Piece piece = pieces.back();
      pieces.pop_back();
      ASSERT_TRUE(heap.free(piece.offset, piece.bytes).ok());
      for (std::size_t i = piece.offset; i < piece.offset + piece.bytes; ++i) used[i] = false;
    }
  }
  for (const Piece& piece : pieces) ASSERT_TRUE(heap.free(piece.offset, piece.bytes).ok());
  EXPECT_EQ(heap.largest_gap(), 4096u);
}

}  // namespace
}  // namespace farwarp
