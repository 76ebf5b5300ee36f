#include "farwarp/ops/attention/shape_mfma.h"

#include <gtest/gtest.h>

#include <set>

#include "farwarp/base/fragments.h"

namespace farwarp::attention {
namespace {

constexpr int kChunkCounts[] = {8, 16};
using Offset = int (*)(int row, int chunk, int chunks);
constexpr Offset kOffsets[] = {key_chunk_offset, value_chunk_offset};

/// Which eighth of all LDS banks a chunk lies in.
int banks_of(int offset) { return offset / 16 % 8; }

TEST(AttentionMfmaShape, EveryChunkHasItsPlace) {
  for (const Offset offset : kOffsets) {
    for (const int chunks : kChunkCounts) {
      std::set<int> offsets;
      for (int row = 0; row < 128; ++row) {
        for (int chunk = 0; chunk < chunks; ++chunk) offsets.insert(offset(row, chunk, chunks));
      }
      EXPECT_EQ(offsets.size(), 128u * chunks);
      EXPECT_EQ(*offsets.rbegin(), (128 * chunks - 1) * 16);
    }
  }
}

// The lanes that ds_write_b128 serves together.
TEST(AttentionMfmaShape, WritesAreFreeOfBankConflicts) {
  for (const int head_dim : {64, 128}) {
    const int key_chunks = head_dim / 8, value_chunks = 8192 / head_dim / 8;
    for (int first = 0; first < kMfmaThreads; first += 8) {
      std::set<int> keys, even, odd;
      for (int thread = first; thread < first + 8; ++thread) {
        keys.insert(banks_of(key_chunk_offset(thread / key_chunks, thread % key_chunks, key_chunks)));
        const int row = row_of_column(2 * (thread % (head_dim / 2))), chunk = thread / (head_dim / 2);
        even.insert(banks_of(value_chunk_offset(row, chunk, value_chunks)));
        odd.insert(banks_of(value_chunk_offset(row + 1, chunk, value_chunks)));
      }
      EXPECT_EQ(keys.size(), 8u) << "thread " << first << ", head_dim " << head_dim;
      EXPECT_EQ(even.size(), 8u) << "thread " << first << ", head_dim " << head_dim;
      EXPECT_EQ(odd.size(), 8u) << "thread " << first << ", head_dim " << head_dim;
    }
  }
}

// The lanes that ds_read_b128 serves together on CDNA3 (tile/gemm/shape_mfma.h).
TEST(AttentionMfmaShape, ReadsAreFreeOfBankConflicts) {
  constexpr int kFirsts[][2] = {{0, 20}, {4, 16}, {8, 28}, {12, 24}, {32, 52}, {36, 48}, {40, 60}, {44, 56}};
  for (const Offset offset : kOffsets) {
    for (const int chunks : kChunkCounts) {
      for (int fragment = 0; fragment < 2; ++fragment) {
        for (int slice = 0; slice < chunks / 2; ++slice) {
          for (const auto& firsts : kFirsts) {
            std::set<int> banks;
            for (const int first : firsts) {
              for (int lane = first; lane < first + 4; ++lane) {
                const MatrixIndex at = mfma32_operand(lane, 0);
                banks.insert(banks_of(offset(32 * fragment + at.row, 2 * slice + at.column / 8, chunks)));
              }
            }
            EXPECT_EQ(banks.size(), 8u) << "lanes " << firsts[0] << " and " << firsts[1] << ", " << chunks << " chunks";
          }
        }
      }
    }
  }
}

TEST(AttentionMfmaShape, EightOfALanesScoresAreOneChunkOfKeys) {
  for (int lane = 0; lane < 64; ++lane) {
    for (int i = 0; i < 16; ++i)
      EXPECT_EQ(key_in_row(mfma32_sum(lane, i).row), i / 8 * 16 + mfma32_operand(lane, i % 8).column);
  }
}

TEST(AttentionMfmaShape, RowsOfColumns) {
  for (int column = 0; column < 128; ++column) {
    EXPECT_EQ(tile::column_in_row(row_of_column(column)), column);
    EXPECT_EQ(row_of_column(column | 1), row_of_column(column & ~1) + 1);
  }
}

// A wave's rows of keys lie in one group of 16 keys, and so in one page.
TEST(AttentionMfmaShape, AWavesRowsAreInOnePage) {
  for (const int rows : {4, 8}) {
    for (int wave = 0; wave < kMfmaWaves; ++wave) {
      for (int row = 0; row < rows; ++row) {
        EXPECT_EQ(key_in_row(wave * rows + row), key_in_row(wave * rows) + key_in_row(row));
        EXPECT_EQ(key_in_row(wave * rows + row) / 16, key_in_row(wave * rows) / 16);
      }
    }
  }
}

}  // namespace
}  // namespace farwarp::attention
