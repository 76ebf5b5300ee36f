// What every bootstrap must do, for the tests of threads and of processes. Each function is one rank of the test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/unique_fd.h"

namespace farwarp::bootstrap_cases {

using namespace std::chrono_literals;

inline std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// Contributions of different lengths arrive in rank order, the rank's own included; many rounds, with ranks at
/// different speeds.
inline void gathers(Bootstrap& group) {
  for (int round = 0; round < 50; ++round) {
    if ((round + group.rank()) % 7 == 0) std::this_thread::sleep_for(1ms);
    const auto text_of = [&](int rank) {
      return std::string(rank * 3, 'x') + std::to_string(rank) + ":" + std::to_string(round);
    };
    auto all = group.allgather(bytes_of(text_of(group.rank())), 10s);
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    ASSERT_EQ(all->size(), group.size());
    for (int rank = 0; rank < group.size(); ++rank) EXPECT_EQ((*all)[rank], bytes_of(text_of(rank)));
  }
  const Status met = group.barrier(10s);
  EXPECT_TRUE(met.ok()) << met.to_string();
}

/// More than fits into a socket's buffer, from all to all.
inline void gathers_megabytes(Bootstrap& group) {
  std::vector<std::byte> mine(1'000'000, static_cast<std::byte>(group.rank()));
  auto all = group.allgather(mine, 20s);
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  for (int rank = 0; rank < group.size(); ++rank) {
    EXPECT_EQ((*all)[rank], std::vector<std::byte>(mine.size(), static_cast<std::byte>(rank)));
  }
}

/// Every rank reads what every other wrote into its memfd; odd ranks send none. The sender's own descriptor is closed
/// at once.
inline void passes_descriptors(Bootstrap& group) {
  UniqueFd mine;
  if (group.rank() % 2 == 0) {
    mine = UniqueFd(::memfd_create("farwarp-test", MFD_CLOEXEC));
    ASSERT_EQ(::pwrite(mine.get(), &"abcdefgh"[group.rank()], 1, 0), 1);
  }
  auto all = group.allgather_fds(mine.get(), 10s);
  const int own = mine.get();
  mine.reset();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_EQ(all->size(), group.size());
  for (int rank = 0; rank < group.size(); ++rank) {
    const UniqueFd fd((*all)[rank]);
    if (rank % 2 == 1) {
      EXPECT_EQ(fd.get(), -1);
      continue;
    }
    EXPECT_NE(fd.get(), own);
    EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    char letter = 0;
    ASSERT_EQ(::pread(fd.get(), &letter, 1, 0), 1);
    EXPECT_EQ(letter, "abcdefgh"[rank]);
  }
}

/// The last rank calls something else: every rank gets the same error, and the group stays usable.
inline void notices_other_calls(Bootstrap& group) {
  const int last = group.size() - 1;
  Status status;
  if (group.rank() == last) {
    status = group.allgather_fds(-1, 10s).status();
  } else {
    status = group.allgather({}, 10s).status();
  }
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_EQ(
      status.message(),
      "rank " + std::to_string(last) +
          " called allgather_fds where rank 0 called allgather: ranks must make the same calls in the same order");
  // A barrier sends a special word.
  if (group.rank() == last) {
    EXPECT_TRUE(group.allgather(bytes_of("data"), 10s).ok());
  } else {
    EXPECT_EQ(group.barrier(10s).code(), StatusCode::kMismatch);
  }
  const Status met = group.barrier(10s);
  EXPECT_TRUE(met.ok()) << met.to_string();
}

/// Rank 1 sleeps beyond the others' deadline: they name it, and it finds the group broken afterwards.
inline void ends_at_the_deadline(Bootstrap& group) {
  ASSERT_TRUE(group.barrier(10s).ok());
  if (group.rank() == 1) {
    std::this_thread::sleep_for(600ms);
    // This collective may still succeed, as the others had made it; the next cannot.
    (void)group.barrier(10s);
    EXPECT_EQ(group.barrier(10s).code(), StatusCode::kDeadline);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  const Status status = group.barrier(200ms);
  const auto waited = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(status.code(), StatusCode::kDeadline);
  EXPECT_EQ(status.message(), "rank 1 did not come to a collective call within 200 ms");
  EXPECT_GT(waited, 100ms);
  EXPECT_LT(waited, 550ms);
  EXPECT_EQ(group.barrier(10s).message(), status.message()) << "broken for good";
}

/// Rank 1 leaves while the others wait: they get the error at once, not at their deadline.
inline void notices_who_leaves(std::shared_ptr<Bootstrap> group) {
  ASSERT_TRUE(group->barrier(10s).ok());
  if (group->rank() == 1) {
    std::this_thread::sleep_for(100ms);
    group.reset();
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  const Status status = group->barrier(20s);
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_TRUE(status.message().starts_with("rank 1 ")) << status.message();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_EQ(group->barrier(10s).message(), status.message()) << "broken for good";
}

}  // namespace farwarp::bootstrap_cases
