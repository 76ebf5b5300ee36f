// Fragments and the swizzle are permutations: every element has one place, every place one element.
#include "farwarp/base/fragments.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "farwarp/base/swizzle.h"

namespace farwarp {
namespace {

TEST(Fragments, WgmmaSumsCoverTheTile) {
  for (const int columns : {16, 96, 256}) {
    std::set<std::pair<int, int>> seen;
    for (int thread = 0; thread < 128; ++thread) {
      for (int i = 0; i < columns / 2; ++i) {
        const MatrixIndex at = wgmma_sum(thread, i);
        EXPECT_TRUE(at.row >= 0 && at.row < 64 && at.column >= 0 && at.column < columns);
        seen.insert({at.row, at.column});
      }
    }
    EXPECT_EQ(seen.size(), 64u * static_cast<unsigned>(columns));
  }
  // PTX ISA: thread 0 holds (0,0) (0,1) (8,0) (8,1) (0,8) ...; thread 5 holds row 1, columns 2 and 3; thread 32 holds
  // row 16.
  EXPECT_EQ(wgmma_sum(0, 2).row, 8);
  EXPECT_EQ(wgmma_sum(0, 4).column, 8);
  EXPECT_EQ(wgmma_sum(5, 1).row, 1);
  EXPECT_EQ(wgmma_sum(5, 1).column, 3);
  EXPECT_EQ(wgmma_sum(32, 0).row, 16);
}

TEST(Fragments, MfmaOperandsAndSumsCoverTheTile) {
  std::set<std::pair<int, int>> operands, sums;
  for (int lane = 0; lane < 64; ++lane) {
    for (int i = 0; i < 4; ++i) {
      operands.insert({mfma_operand(lane, i).row, mfma_operand(lane, i).column});
      sums.insert({mfma_sum(lane, i).row, mfma_sum(lane, i).column});
    }
  }
  EXPECT_EQ(operands.size(), 256u);
  EXPECT_EQ(sums.size(), 256u);
}

TEST(Fragments, Mfma32OperandsAndSumsCoverTheTile) {
  std::set<std::pair<int, int>> operands, sums;
  for (int lane = 0; lane < 64; ++lane) {
    for (int i = 0; i < 8; ++i) operands.insert({mfma32_operand(lane, i).row, mfma32_operand(lane, i).column});
    for (int i = 0; i < 16; ++i) sums.insert({mfma32_sum(lane, i).row, mfma32_sum(lane, i).column});
  }
  EXPECT_EQ(operands.size(), 512u);
  EXPECT_EQ(sums.size(), 1024u);
}

TEST(Fragments, MmaOperandsAndSumsCoverTheTile) {
  std::set<std::pair<int, int>> operands, sums;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) operands.insert({mma_operand(lane, i).row, mma_operand(lane, i).column});
    for (int i = 0; i < 4; ++i) sums.insert({mma_sum(lane, i).row, mma_sum(lane, i).column});
  }
  EXPECT_EQ(operands.size(), 256u);
  EXPECT_EQ(sums.size(), 128u);
}

TEST(Swizzle, PermutesChunksWithinARow) {
  std::set<int> seen;
  for (int row = 0; row < 16; ++row) {
    for (int byte = 0; byte < kSwizzleRowBytes; ++byte) {
      const int offset = swizzled_offset(row, byte);
      EXPECT_EQ(offset / kSwizzleRowBytes, row);
      EXPECT_EQ(offset % 16, byte % 16);
      seen.insert(offset);
    }
  }
  EXPECT_EQ(seen.size(), 16u * kSwizzleRowBytes);
  EXPECT_EQ(swizzled_offset(1, 0), 128 + 16);
  EXPECT_EQ(swizzled_offset(7, 112), 7 * 128);
}

}  // namespace
}  // namespace farwarp
