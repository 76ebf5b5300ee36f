// The stores against plain lists, and the queue of events against sorting.
#include "farwarp/machine/cache_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "farwarp/machine/event_queue.h"

namespace farwarp {
namespace {

TEST(TileStore, ReplacesTheLeastRecentlyUsed) {
  std::mt19937 random(1);
  for (const std::int64_t room : {1, 10, 100, 1000}) {
    TileStore store(room);
    std::vector<std::pair<std::uint64_t, std::int64_t>> list;  // key and bytes, the most recent first
    for (int i = 0; i < 20000; ++i) {
      const std::uint64_t key = random() % 150 << (random() % 2 * 36);
      const auto bytes = static_cast<std::int64_t>(1 + key % 7);
      const auto at = std::find(list.begin(), list.end(), std::pair{key, bytes});
      const ReadyTime* const found = store.find(key);
      ASSERT_EQ(found != nullptr, at != list.end());
      if (found != nullptr) {
        ASSERT_EQ(*found, static_cast<double>(key));
        std::rotate(list.begin(), at, at + 1);
        continue;
      }
      store.insert(key, static_cast<double>(key), bytes);
      const auto held = [&] {
        std::int64_t sum = 0;
        for (const auto& [other, size] : list) sum += size;
        return sum;
      };
      while (!list.empty() && held() + bytes > room) list.pop_back();
      if (held() + bytes <= room) list.insert(list.begin(), {key, bytes});
    }
  }
}

TEST(LineStore, ReplacesTheLeastRecentlyUsedOfASet) {
  LineStore store(4 * 2 * 128, 2, 128);  // 4 sets of 2 ways
  for (const std::uint64_t key : {0, 4, 1}) {
    EXPECT_EQ(store.find(key), nullptr);
    store.insert(key, 1, 128);
  }
  EXPECT_NE(store.find(0), nullptr);  // 4 is now the older of set 0
  store.insert(8, 1, 128);
  EXPECT_EQ(store.find(4), nullptr);
  EXPECT_NE(store.find(0), nullptr);
  EXPECT_NE(store.find(8), nullptr);
  EXPECT_NE(store.find(1), nullptr);
}

TEST(LineStore, HoldsAsManyConsecutiveLinesAsItHas) {
  LineStore store(std::int64_t{4} << 20, 16, 128);
  for (std::uint64_t line = 0; line < 32768; ++line) store.insert((std::uint64_t{5} << kObjectShift) + line, 0, 128);
  for (std::uint64_t line = 0; line < 32768; ++line)
    ASSERT_NE(store.find((std::uint64_t{5} << kObjectShift) + line), nullptr);
}

TEST(EventQueue, GivesEventsInTheOrderOfTheirTime) {
  std::mt19937 random(1);
  EventQueue queue(50);
  std::vector<double> times(50);
  for (int place = 0; place < 50; ++place) queue.push(place, times[place] = random() % 20);
  double last = 0;
  for (int i = 0; i < 5000; ++i) {
    const int place = queue.first();
    ASSERT_EQ(queue.first_time(), times[place]);
    ASSERT_GE(times[place], last);
    ASSERT_EQ(times[place], *std::min_element(times.begin(), times.end()));
    last = times[place];
    queue.replace_first(times[place] = last + random() % 20);
  }
  for (int left = 50; left > 0; --left) {
    ASSERT_FALSE(queue.empty());
    ASSERT_GE(queue.first_time(), last);
    last = queue.first_time();
    queue.pop_first();
  }
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace farwarp
