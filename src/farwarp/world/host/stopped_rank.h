// For tests: one of the forked ranks is stopped by SIGSTOP, and the others have to detect it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <new>
#include <string>
#include <thread>

namespace farwarp {

/// Constructed before the ranks are forked.
class StoppedRank {
 public:
  StoppedRank() {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
  }
  ~StoppedRank() { ::munmap(shared_, sizeof(Shared)); }
  StoppedRank(const StoppedRank&) = delete;
  StoppedRank& operator=(const StoppedRank&) = delete;

  /// Called by the rank that is to be stopped. Returns when the rank is continued.
  void stop() {
    shared_->pid = ::getpid();
    ::raise(SIGSTOP);
  }

  /// Called by every other rank, before the call that has to detect the stopped rank.
  void wait_until_stopped() const {
    while (shared_->pid == 0 || state_of(shared_->pid) != 'T')
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// Called by every other rank at its end: the last one sends `signal` to the stopped rank.
  void leave(int others, int signal) {
    if (++shared_->left == others) ::kill(shared_->pid, signal);
  }

 private:
  struct Shared {
    std::atomic<pid_t> pid = 0;
    std::atomic<int> left = 0;
  };

  /// 'T' if all threads of the process are stopped.
  static char state_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string stat;
    std::getline(file, stat);
    const std::size_t name_end = stat.rfind(") ");
    return name_end == std::string::npos ? '?' : stat[name_end + 2];
  }

  Shared* shared_;
};

}  // namespace farwarp
