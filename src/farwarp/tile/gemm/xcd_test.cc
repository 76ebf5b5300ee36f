#include "farwarp/tile/gemm/xcd.h"

#include <gtest/gtest.h>

#include <vector>

namespace farwarp::tile {
namespace {

constexpr int kXcdCounts[] = {1, 2, 3, 4, 6, 8};

TEST(Xcd, EveryWorkIsDoneOnce) {
  for (const int xcds : kXcdCounts) {
    for (int count = 1; count <= 700; ++count) {
      std::vector<int> taken(count, 0);
      for (int index = 0; index < count; ++index) {
        const int work = work_on_xcd(index, count, xcds);
        ASSERT_GE(work, 0);
        ASSERT_LT(work, count) << "index " << index << ", " << xcds << " XCDs";
        ++taken[work];
      }
      ASSERT_EQ(taken, std::vector<int>(count, 1)) << count << " works, " << xcds << " XCDs";
    }
  }
}

TEST(Xcd, AnXcdWorksOnNeighbours) {
  for (const int xcds : kXcdCounts) {
    for (int count = 1; count <= 700; ++count) {
      for (int index = xcds; index < count; ++index) {
        ASSERT_EQ(work_on_xcd(index, count, xcds), work_on_xcd(index - xcds, count, xcds) + 1)
            << "index " << index << " of " << count << ", " << xcds << " XCDs";
      }
    }
  }
}

TEST(Xcd, SharesDifferByAtMostOne) {
  // Of 19 works on 8 XCDs the first three get three, the others two.
  const int first[] = {0, 3, 6, 9, 11, 13, 15, 17};
  for (int die = 0; die < 8; ++die) EXPECT_EQ(work_on_xcd(die, 19, 8), first[die]);
}

}  // namespace
}  // namespace farwarp::tile
