#include "farwarp/tile/gemm/shape_mfma.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "farwarp/base/fragments.h"

namespace farwarp::tile {
namespace {

constexpr int kChunkCounts[] = {4, 8};  // depths 32 and 64

/// Which eighth of all LDS banks a chunk lies in.
int banks_of(int offset) { return offset / 16 % 8; }

TEST(MfmaShape, EveryChunkHasItsPlace) {
  for (const int chunks : kChunkCounts) {
    std::set<int> offsets;
    for (int row = 0; row < 128; ++row) {
      for (int chunk = 0; chunk < chunks; ++chunk) offsets.insert(chunk_offset(row, chunk, chunks));
    }
    EXPECT_EQ(offsets.size(), 128u * chunks);
    EXPECT_EQ(*offsets.rbegin(), (128 * chunks - 1) * 16);
  }
}

// The lanes that ds_write_b128 serves together, each with chunk `lane % chunks` of row `lane / chunks`.
TEST(MfmaShape, WritesAreFreeOfBankConflicts) {
  for (const int chunks : kChunkCounts) {
    for (int first = 0; first < 512; first += 8) {
      std::set<int> banks;
      for (int thread = first; thread < first + 8; ++thread)
        banks.insert(banks_of(chunk_offset(thread / chunks, thread % chunks, chunks)));
      EXPECT_EQ(banks.size(), 8u) << "thread " << first << ", " << chunks << " chunks";
    }
  }
}

// The lanes that ds_read_b128 serves together on CDNA3.
TEST(MfmaShape, ReadsAreFreeOfBankConflicts) {
  constexpr int kFirsts[][2] = {{0, 20}, {4, 16}, {8, 28}, {12, 24}, {32, 52}, {36, 48}, {40, 60}, {44, 56}};
  for (const int chunks : kChunkCounts) {
    for (int slice = 0; slice < chunks / 2; ++slice) {
      for (const auto& firsts : kFirsts) {
        std::set<int> banks;
        for (const int first : firsts) {
          for (int lane = first; lane < first + 4; ++lane) {
            const MatrixIndex at = mfma32_operand(lane, 0);
            banks.insert(banks_of(chunk_offset(at.row, 2 * slice + at.column / 8, chunks)));
          }
        }
        EXPECT_EQ(banks.size(), 8u) << "lanes " << firsts[0] << " and " << firsts[1] << ", " << chunks << " chunks";
      }
    }
  }
}

TEST(MfmaShape, ALaneHoldsEightNeighboursOfARowOfY) {
  for (int lane = 0; lane < 64; ++lane) {
    const int first = column_in_row(mfma32_sum(lane, 0).row);
    EXPECT_EQ(first % 8, 0);
    for (int i = 0; i < 16; ++i)
      EXPECT_EQ(column_in_row(mfma32_sum(lane, i).row), first + i / 8 * 16 + i % 8) << lane << ", " << i;
  }
  std::vector<int> columns;
  for (int row = 0; row < 128; ++row) columns.push_back(column_in_row(row));
  std::ranges::sort(columns);
  for (int column = 0; column < 128; ++column) EXPECT_EQ(columns[column], column);
}

}  // namespace
}  // namespace farwarp::tile
