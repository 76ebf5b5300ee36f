#include "farwarp/substrate/emu/vector_clock.h"

#include <gtest/gtest.h>

#include "farwarp/substrate/emu/arena.h"

namespace farwarp::emu {
namespace {

// No launch of this program uses these warp numbers. So block_uid() is 0 for all of them, and an entry of block 0
// covers them. The tests of blocks use block 0.
constexpr Uid kThread = (kMaxWarps - 2) << 6 | 3;
constexpr Uid kNeighbour = (kMaxWarps - 2) << 6 | 4;

std::size_t size(const ClockRef& clock) { return clock ? clock->entries.size() : 0; }

TEST(VectorClockTest, JoinTakesTheLaterTime) {
  const ClockRef a = with({}, {{thread_key(kThread), 10}, {thread_key(kNeighbour), 20}});
  const ClockRef b = with({}, {{thread_key(kThread), 15}, {thread_key(kNeighbour), 12}});
  const ClockRef both = join(a, b);
  EXPECT_EQ(time_of(both, thread_key(kThread)), 15u);
  EXPECT_EQ(time_of(both, thread_key(kNeighbour)), 20u);
  EXPECT_EQ(time_of(both, warp_key(kThread)), 0u);
}

TEST(VectorClockTest, JoinSharesWhatAddsNothing) {
  const ClockRef a = with({}, {{thread_key(kThread), 10}, {thread_key(kNeighbour), 20}});
  const ClockRef b = with({}, {{thread_key(kThread), 9}});
  EXPECT_EQ(join(a, b), a);
  EXPECT_EQ(join(b, a), a);
  EXPECT_EQ(join(a, {}), a);
  EXPECT_EQ(join({}, a), a);
  EXPECT_EQ(with(a, {{thread_key(kThread), 10}}), a);
}

TEST(VectorClockTest, WiderEntriesReplaceNarrowerOnes) {
  const ClockRef threads = with({}, {{thread_key(kThread), 10}, {thread_key(kNeighbour), 20}});
  const ClockRef warp = with(threads, {{warp_key(kThread), 15}});
  EXPECT_EQ(size(warp), 2u);  // the warp, and the neighbour, whose time is later
  EXPECT_EQ(time_of(warp, thread_key(kThread)), 0u);
  EXPECT_EQ(time_of(warp, thread_key(kNeighbour)), 20u);
  EXPECT_EQ(size(with(warp, {{block_key(0), 30}})), 1u);
}

TEST(VectorClockTest, AsyncProxiesAreCoveredByNobody) {
  const ClockRef clock = with({}, {{async_key(kThread), 10}, {warp_key(kThread), 20}, {block_key(0), 30}});
  EXPECT_EQ(time_of(clock, async_key(kThread)), 10u);
}

TEST(VectorClockTest, TheLaterOfTwoEqualKeysCounts) {
  const ClockRef clock = with({}, {{thread_key(kThread), 10}, {thread_key(kThread), 30}, {thread_key(kThread), 20}});
  EXPECT_EQ(time_of(clock, thread_key(kThread)), 30u);
  EXPECT_EQ(size(clock), 1u);
}

TEST(StampTest, PacksAllItsParts) {
  const Time time = (Time{1} << Stamp::kTimeBits) - 1;
  const Uid uid = (Uid{1} << kUidBits) - 1;
  Stamp stamp(uid, time, Stamp::kStrong | Stamp::kWatched);
  EXPECT_EQ(stamp.time(), time);
  EXPECT_EQ(stamp.uid(), uid);
  EXPECT_TRUE(stamp.has(Stamp::kStrong));
  EXPECT_FALSE(stamp.has(Stamp::kAsync));
  stamp.clear(Stamp::kWatched);
  EXPECT_FALSE(stamp.has(Stamp::kWatched));
  EXPECT_EQ(stamp.time(), time);
}

}  // namespace
}  // namespace farwarp::emu
