// Memory that the ranks of a test's submission share.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "farwarp/submission.h"

class SharedMemory {
 public:
  /// In create(), by all ranks. `bytes` are zeros. False: there is none.
  bool open(const farwarp_submission_problem& problem, std::size_t bytes) {
    ranks_ = problem.ranks;
    char name[64] = {}, names[8][64] = {};
    std::snprintf(name, sizeof(name), "/farwarp-test-%d", static_cast<int>(getpid()));
    if (problem.rank == 0) map(name, bytes, true);
    if (problem.allgather(problem.context, name, sizeof(name), names) != 0) return false;
    if (problem.rank != 0) map(names[0], bytes, false);
    if (problem.barrier(problem.context) != 0) return false;
    if (problem.rank == 0) shm_unlink(name);
    return arrived_ != nullptr;
  }
  void* data() const { return arrived_ + kAlignment / sizeof(*arrived_); }
  /// No rank goes on before all are here.
  void meet() {
    arrived_->fetch_add(1);
    ++meetings_;
    while (arrived_->load() < meetings_ * static_cast<std::uint64_t>(ranks_)) sched_yield();
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  void map(const char* name, std::size_t bytes, bool create) {
    bytes += kAlignment;
    const int fd = shm_open(name, create ? O_CREAT | O_EXCL | O_RDWR : O_RDWR, 0600);
    void* memory = MAP_FAILED;
    if (!create || ftruncate(fd, static_cast<off_t>(bytes)) == 0)
      memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) arrived_ = static_cast<std::atomic<std::uint64_t>*>(memory);
  }

  std::atomic<std::uint64_t>* arrived_ = nullptr;  ///< at the beginning
  int ranks_ = 0;
  std::uint64_t meetings_ = 0;
};
