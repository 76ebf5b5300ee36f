#include "farwarp/base/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace farwarp {
namespace {

const char* at(std::int64_t address) { return reinterpret_cast<const char*>(address); }

std::set<std::int64_t> bytes_of(const Extent& of) {
  std::set<std::int64_t> all;
  for (std::int64_t row = 0; row < of.rows; ++row) {
    for (std::int64_t byte = 0; byte < of.row_bytes; ++byte)
      all.insert(reinterpret_cast<std::int64_t>(of.begin) + row * of.pitch + byte);
  }
  return all;
}

TEST(Overlap, IsThatOfTheBytes) {
  std::mt19937 random(1);
  const auto up_to = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most + 1)); };
  int apart = 0, together = 0, between_rows = 0;
  for (int i = 0; i < 50'000; ++i) {
    Extent extents[2];
    for (Extent& extent : extents) {
      extent.begin = at(100 + up_to(60));
      extent.row_bytes = up_to(6);
      extent.rows = up_to(6);
      extent.pitch = extent.row_bytes + up_to(6);
    }
    if (i % 2 == 0) {
      extents[1].pitch = extents[0].pitch;
      extents[1].row_bytes = std::min(extents[1].row_bytes, extents[0].pitch);
    }
    const auto a = bytes_of(extents[0]), b = bytes_of(extents[1]);
    const bool expected = std::ranges::any_of(a, [&](std::int64_t byte) { return b.contains(byte); });
    ASSERT_EQ(overlap(extents[0], extents[1]), expected) << i;
    ASSERT_EQ(overlap(extents[1], extents[0]), expected) << i;
    (expected ? together : apart) += 1;
    if (!expected && !a.empty() && !b.empty() && *a.begin() < *b.rbegin() && *b.begin() < *a.rbegin()) ++between_rows;
  }
  EXPECT_GT(together, 5'000);
  EXPECT_GT(apart, 5'000);
  EXPECT_GT(between_rows, 1'000);
}

/// q, k and v of one matrix, a token's side by side, beside results of their own.
TEST(Overlap, SlicesOfOneMatrixAreApart) {
  const Extent q{"q", at(4096), 512, 100, 1024}, k{"k", at(4096 + 512), 256, 100, 1024},
      v{"v", at(4096 + 768), 256, 100, 1024};
  EXPECT_TRUE(check_apart({q, k, v}, {{"out", at(4096 + 100 * 1024), 512 * 100}}).ok());
  EXPECT_TRUE(check_apart({k, v}, {q}).ok()) << "a result may lie between inputs";
  EXPECT_EQ(check_apart({q, k, v}, {{"out", at(4096 + 100 * 1024 - 256), 512 * 100}}).message(),
            "out overlaps v: it begins 101376 bytes after the start of that tensor, which spans 101632 bytes; allowed: "
            "memory that no other tensor of the call has");
}

TEST(Overlap, ResultsAreApartFromEachOther) {
  EXPECT_EQ(
      check_apart({}, {{"out", at(64), 64}, {"lse", at(0x38), 16}}).message(),
      "lse overlaps out: it begins 8 bytes before that tensor, which spans 64 bytes; allowed: memory that no other "
      "tensor of the call has");
  EXPECT_TRUE(check_apart({{"x", at(64), 64}, {"w", at(64), 64}}, {{"y", at(128), 64}}).ok()) << "inputs may overlap";
  EXPECT_TRUE(check_apart({{"x", at(64), 64}}, {{"y", nullptr, 64}, {"z", at(64), 0}, {"u", at(64), 8, 0, 8}}).ok());
}

}  // namespace
}  // namespace farwarp
