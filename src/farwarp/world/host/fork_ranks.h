// For tests: ranks as forked processes. A test program that uses it must not start threads, because a forked child has
// only the thread that called fork.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace farwarp {

/// A rendezvous that no other test uses.
inline std::string fresh_rendezvous() {
  static int count = 0;
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

/// Runs `body(rank)` in one process per rank; returns wait() statuses in rank order. A child whose gtest expectations
/// fail exits with 1. Children that are not done after `limit` are killed.
inline std::vector<int> fork_ranks(int size, const std::function<void(int rank)>& body,
                                   std::chrono::seconds limit = std::chrono::seconds(30)) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      body(rank);
      std::fflush(nullptr);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = -1;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) ::kill(child, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    statuses.push_back(status);
  }
  return statuses;
}

/// Expects every rank to exit with 0.
inline void expect_forked(int size, const std::function<void(int rank)>& body) {
  const std::vector<int> statuses = fork_ranks(size, body);
  for (int rank = 0; rank < size; ++rank) EXPECT_EQ(statuses[rank], 0) << "rank " << rank;
}

}  // namespace farwarp
