#include "farwarp/substrate/emu/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

namespace farwarp::emu {
namespace {

class ArenaTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(arena_.reserve().ok()); }

  std::byte* allocate(std::size_t bytes, int device = 0) {
    auto memory = arena_.allocate(device, bytes);
    EXPECT_TRUE(memory.ok()) << memory.status().to_string();
    return static_cast<std::byte*>(*memory);
  }

  static bool all(const std::byte* from, std::size_t bytes, unsigned char value) {
    return std::all_of(from, from + bytes, [value](std::byte byte) { return byte == std::byte{value}; });
  }

  Arena arena_;
};

TEST_F(ArenaTest, FreshMemoryIsPoisoned) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'000}, std::size_t{20'000'000}}) {
    std::byte* memory = allocate(bytes);
    EXPECT_TRUE(all(memory, bytes, kPoison)) << bytes;
    std::fill(memory, memory + bytes, std::byte{1});
    arena_.release(memory);
    std::byte* again = allocate(bytes);
    EXPECT_EQ(again, memory);
    EXPECT_TRUE(all(again, bytes, kPoison)) << bytes;
    arena_.release(again);
  }
}

TEST_F(ArenaTest, KnowsExactlyWhatIsAllocated) {
  std::byte* first = allocate(1000);
  std::byte* second = allocate(1000);
  EXPECT_NE(arena_.find(first, 1000), nullptr);
  EXPECT_NE(arena_.find(first + 992, 8), nullptr);
  EXPECT_EQ(arena_.find(first + 993, 8), nullptr);
  EXPECT_EQ(arena_.find(first - 1, 1), nullptr);
  EXPECT_EQ(arena_.find(second - 1, 1), nullptr);
  EXPECT_EQ(arena_.find(nullptr, 1), nullptr);
  EXPECT_EQ(arena_.find(this, 1), nullptr);
  EXPECT_TRUE(arena_.release(first));
  EXPECT_EQ(arena_.find(first, 1), nullptr);
  EXPECT_FALSE(arena_.release(first));
  EXPECT_FALSE(arena_.release(second + 8));
}

TEST_F(ArenaTest, AddressesOfADeviceDoNotDependOnOthers) {
  std::byte* here = allocate(4096, 3);
  arena_.release(here);
  allocate(4096, 2);
  allocate(4096, 4);
  EXPECT_EQ(allocate(4096, 3), here);
  EXPECT_EQ(arena_.device_of(here), 3);
}

TEST_F(ArenaTest, DescribesAddresses) {
  std::byte* memory = allocate(4096, 2);
  EXPECT_EQ(arena_.describe(memory + 64), "byte 64 of a 4096-byte allocation of device 2");
  EXPECT_EQ(arena_.describe(memory + 4104), "8 bytes past the end of a 4096-byte allocation of device 2");
  EXPECT_NE(arena_.describe(this).find("outside device memory"), std::string::npos);
  EXPECT_EQ(arena_.describe(memory - 8), "unallocated memory of device 2");
}

TEST_F(ArenaTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(arena_.allocate(0, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(arena_.allocate(0, std::size_t{1} << 40).status().code(), StatusCode::kOutOfMemory);
}

TEST_F(ArenaTest, SharesMemoryThroughItsDescriptor) {
  int fd = -1;
  auto memory = arena_.allocate_memfd(1, 100'000, &fd);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  auto* here = static_cast<std::byte*>(*memory);
  EXPECT_TRUE(all(here, 100'000, 0));
  auto mapped = arena_.map_memfd(fd, 100'000);
  ASSERT_TRUE(mapped.ok()) << mapped.status().to_string();
  here[99'999] = std::byte{7};
  EXPECT_EQ(static_cast<std::byte*>(*mapped)[99'999], std::byte{7});
  EXPECT_TRUE(arena_.release(*mapped));
  EXPECT_TRUE(arena_.release(here));
}

TEST_F(ArenaTest, ForgetsWritersOfExactlyTheRange) {
  constexpr std::size_t kBytes = 1 << 20;
  std::byte* memory = allocate(kBytes);
  const auto stamp_all = [&] {
    for (std::size_t at = 0; at < kBytes; at += 8) arena_.shadow_of(memory + at).stamp = Stamp(1, 1, 0);
  };
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{700'000}}) {
    stamp_all();
    arena_.forget_writers(memory + 80, bytes);
    for (std::size_t at = 0; at < kBytes; at += 8) {
      const bool forgotten = at >= 80 && at < 80 + bytes;
      ASSERT_EQ(arena_.shadow_of(memory + at).stamp.time(), forgotten ? 0u : 1u) << at << " of " << bytes;
    }
  }
}

}  // namespace
}  // namespace farwarp::emu
